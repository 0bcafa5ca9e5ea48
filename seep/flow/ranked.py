"""`top`, `dedupe` and `reduce` as vertices: what they check, what they give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from operators.count_window import RowsWindow
from operators.dedupe import Dedupe
from operators.ranking import RANK, check_ranking
from operators.reduce import Reduce
from operators.stateless import Project
from operators.step import DEAD_LETTERS
from operators.table_lookup import TableLookup
from operators.top import PLACE, Top
from operators.window_top import WindowTop
from seep.errors import Misuse
from seep.flow.checked_times import head_of
from seep.flow.grouping import GROUPING
from seep.flow.keyed import hint_of, key_of, named, ready
from seep.flow.logical import Chain, Input, Lineage, Tap, Vertex, chains
from seep.model.arrow import CHANGE
from seep.model.duration import positive_microseconds
from seep.model.keyspace import check_keys
from seep.model.schema import TIMESTAMP

if TYPE_CHECKING:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

_AT_ONCE = {Dedupe: 0, TableLookup: 1}
"""Operators that give out rows of an input with their columns, in the epoch in which they come: which input."""


def top(stream: Stream, n: int, by: tuple[Any, ...], descending: bool, ties: str) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "top")
    check_ranking(stream.schema, n, by, descending, ties)
    windows = windows_of(stream)
    primary = place_of(stream.schema, "number" if windows else ties)
    if not windows and CHANGE in stream.schema.names:
        raise Misuse(f"there is a column {CHANGE!r}, which top needs itself; rename or drop it")
    arguments: dict[str, Any] = {
        "keys": keys,
        "schema": stream.schema,
        "n": n,
        "by": by,
        "descending": descending,
        "ties": ties,
    }
    inputs = (Input(stream.lineage, keys, stream.schema),)
    if windows:
        arguments["windows"] = windows
    head: Any = WindowTop if windows else Top
    schema = head(**arguments).schema
    make = partial(ready, head, arguments)
    vertex = stream._operator("top", make, {"out": schema}, inputs, hint_of("top", keys), stateful=not windows)
    if windows:
        return Stream(stream.flow, Tap(vertex, "out"), schema, keys, stream.time)
    return Table(stream.flow, Tap(vertex, "out"), schema, (*keys, primary))


def place_of(schema: pa.Schema, ties: str) -> str:
    """The column that names the place of a row among the best; one of that name is refused."""
    place = PLACE if ties == "rank" else RANK
    for name in dict.fromkeys((RANK, place)):
        if name in schema.names:
            raise Misuse(f"there is a column {name!r}, which top needs itself; rename or drop it")
    return place


def windows_of(stream: Stream) -> tuple[str, ...]:
    """The window columns of a stream of closed windows, its end first; empty when it is none, or has lost them.

    A window's rows all come in the epoch in which it closes; verbs without state keep them there, and so do those that
    give a row out in the epoch in which they take it. Of a union each branch may close a window in an epoch of its
    own."""
    return _windows_on(stream.lineage, stream.schema)


def _windows_on(lineage: Lineage, schema: pa.Schema) -> tuple[str, ...]:
    ways = list(chains(lineage))
    if len(ways) != 1 or ways[0].tap.output != "out":
        return ()
    names = _windows_out(ways[0].tap.vertex)
    followed = [name for name in (_followed(ways[0], name) for name in names) if name is not None]
    return tuple(name for name in followed if name in schema.names and schema.field(name).type == TIMESTAMP)


def _windows_out(vertex: Vertex) -> tuple[str, ...]:
    """What an operator gives out as window columns."""
    head, made = head_of(vertex)
    if CHANGE in vertex.outputs["out"].names:
        return ()
    if vertex.verb == "window":
        # Windows by count end with a row, each key's by itself: two of equal times are not one window.
        return () if head is RowsWindow else tuple(reversed(made.get("names", ())))
    if head is WindowTop:
        return tuple(made["windows"])
    if head in _AT_ONCE or GROUPING in vertex.settings:
        given = vertex.inputs[_AT_ONCE.get(head, 0)]
        return _windows_on(given.lineage, given.schema)
    return ()


def _followed(way: Chain, name: str | None) -> str | None:
    """What a column is called at the end; behind a function, a column of its name is taken for it."""
    for after in way.stages:
        step = after.stage.step
        if isinstance(step, Project):
            name = step.copies.get(name) if name is not None else None
        elif after.output == "errors":
            return None
    return name


def dedupe(stream: Stream, columns: tuple[str, ...], ttl: str | timedelta | None) -> Stream:
    from seep.flow.stream import Stream

    if not columns and stream.keys is None:
        raise Misuse("dedupe needs columns, or key_by(..) before it")
    keys = columns or stream.keys or ()
    check_keys(stream.schema, keys)
    # Rounded up: nothing is forgotten before its time.
    ttl_ms = None if ttl is None else -(-positive_microseconds(ttl) // 1000)
    arguments = {"keys": keys, "schema": stream.schema, "ttl_ms": ttl_ms}
    schema: pa.Schema = Dedupe(**arguments).schema
    inputs = (Input(stream.lineage, keys, stream.schema),)
    make = partial(ready, Dedupe, arguments)
    vertex = stream._operator("dedupe", make, {"out": schema}, inputs, hint_of("dedupe", keys))
    return Stream(stream.flow, Tap(vertex, "out"), schema, stream.keys, stream.time)


def reduce(stream: Stream, function: Callable[[Any, Any], Any], on_error: str) -> Table:
    from seep.flow.table import Table

    keys = key_of(stream, "reduce")
    if not callable(function):
        raise Misuse(f"{function!r} is no function; give fn(folded, row) -> row")
    if CHANGE in stream.schema.names:
        raise Misuse(f"the stream has a column {CHANGE!r}, which a Table needs itself; rename it")
    arguments = {"keys": keys, "schema": stream.schema, "function": function, "on_error": on_error}
    schema = Reduce(**arguments).schema
    inputs = (Input(stream.lineage, keys, stream.schema),)
    outputs = {"out": schema, "errors": DEAD_LETTERS}
    vertex = stream._operator("reduce", partial(named, Reduce, arguments), outputs, inputs, hint_of("reduce", keys))
    return Table(stream.flow, Tap(vertex, "out"), schema, keys)
