"""What a sender does for the aggregate it sends to: fold its rows before they travel, or at least leave out columns
that nobody reads.

Decided for a whole operator when the flow is compiled, from the declaration alone, never from the data: how the rows
of an epoch travel must be the same at every replay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import pyarrow as pa

from operators.aggregate import Aggregate
from operators.aggregates import Spec
from operators.combine import Combine, why_not
from operators.copying import CopyingWindow
from operators.count_window import RowsWindow
from operators.session import SessionWindow
from operators.sliding import SlidingWindow
from operators.window import TumblingWindow
from seep.flow.checked_times import never_null
from seep.flow.logical import Chain, Vertex
from seep.model.schema import physical

_HEADS = (Aggregate, TumblingWindow, SlidingWindow, CopyingWindow, SessionWindow, RowsWindow)
_BY_ROW = {
    CopyingWindow: "an aggregate that cannot be merged takes each row",
    SessionWindow: "where a session ends is known by each row's time",
    RowsWindow: "a window by count takes row after row",
}


@dataclass(frozen=True, eq=False)
class Sending:
    """How the rows for one operator travel."""

    make: Any
    """Makes the operator's head, told what it will get."""
    schemas: tuple[pa.Schema, ...] = ()
    """Of each input the columns that are read; empty: as the verb declared them."""
    combine: Combine | None = None
    reason: str = ""
    """Why the rows are not folded; empty when they are, or when there is nothing to fold."""
    unread: tuple[str, ...] = ()
    """The columns that stay behind."""


def sending(vertex: Vertex, chains: Sequence[Chain], used: Collection[str]) -> Sending:
    """``chains``: all the ways to the operator; ``used``: those of its outputs that somebody takes."""
    if not (isinstance(vertex.make, partial) and vertex.make.args and vertex.make.args[0] in _HEADS):
        return Sending(vertex.make)
    head, arguments = vertex.make.args
    if arguments["on_error"] == "dead_letter" and any(spec.own for spec in arguments["aggregates"].values()):
        return Sending(vertex.make, reason="an aggregate of yours may refuse a row, which is shown as it came")
    if "late" in used:
        return Sending(vertex.make, reason="its late rows are taken, which travel as they are")
    # An aggregate's time only gives its rows an order; a window's says where they belong.
    column: str | None = None if head is Aggregate else arguments["time_column"]
    if column is not None and not all(never_null(chain, frozenset([column])) for chain in chains):
        return Sending(vertex.make, reason=f"{column!r} may be null behind a function, and such rows are dead letters")
    schema: pa.Schema = physical(arguments["schema"])
    aggregates: Mapping[str, Spec] = arguments["aggregates"]
    reason = _BY_ROW.get(head, "") or why_not(schema, aggregates)
    read = _read(schema, arguments["keys"], arguments.get("time_column"), aggregates)
    unread = tuple(name for name in schema.names if name not in read.names)
    arguments = {**arguments, "schema": read}
    if reason:
        return Sending(partial(vertex.make.func, head, arguments), (read,), reason=reason, unread=unread)
    combine = Combine(
        tuple(arguments["keys"]),
        read,
        aggregates,
        column,
        # A sliding window's rows are folded by pane.
        gcd(arguments["size_us"], arguments.get("every_us", 0)) if column is not None else 0,
        arguments["offset_us"] if column is not None else 0,
        arguments.get("time_column"),
    )
    return Sending(partial(vertex.make.func, head, {**arguments, "combined": combine}), (read,), combine, unread=unread)


def _read(schema: pa.Schema, keys: Sequence[str], time: str | None, aggregates: Mapping[str, Spec]) -> pa.Schema:
    names = {*keys, time}
    for spec in aggregates.values():
        names |= spec.reads(schema)
    # Rows without any column could not be counted.
    fields = [field for field in schema if field.name in names] or [schema.field(0)]
    return pa.schema(fields)
