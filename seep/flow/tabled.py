"""Tables as vertices: of a stream's latest rows, and made again from another Table's changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from operators.stateless import Project
from operators.table import LatestTable
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of, ready
from seep.flow.logical import After, Input, Stage, Tap
from seep.flow.place import place
from seep.model.arrow import CHANGE, DELETE

if TYPE_CHECKING:
    from seep.flow.dataset import Dataset
    from seep.flow.stream import Stream
    from seep.flow.table import Table

GONE = "__gone"
"""Marks, on the way to a Table that is made again, the rows that delete their key."""


def table(stream: Stream, deleted: pl.Expr | None) -> Table:
    keys = key_of(stream, "table")
    if CHANGE in stream.schema.names:
        raise Misuse(f"the stream has a column {CHANGE!r}, which a Table needs itself; rename it")
    return latest(stream, stream.lineage, stream.schema, keys, deleted, "table")


def latest(
    data: Dataset, lineage: Any, schema: pa.Schema, keys: tuple[str, ...], deleted: pl.Expr | None, verb: str
) -> Table:
    from seep.flow.table import Table

    arguments = {"keys": keys, "schema": schema, "deleted": deleted}
    out = LatestTable(**arguments).schema
    make = partial(ready, LatestTable, arguments)
    inputs = (Input(lineage, keys, schema),)
    vertex = data._operator(verb, make, {"out": out}, inputs, hint_of(verb, keys))
    return Table(data.flow, Tap(vertex, "out"), out, keys)


def remade(table: Table, verb: str, predicate: pl.Expr | None) -> Table:
    """The Table made again from its changes, without the rows that a predicate refuses.

    A change says the new row only, so whether a row leaves a filtered Table, or a narrower row has changed at all,
    is known only by what the narrower Table holds: that is state of its own.
    """
    rows = table.schema
    gone = pl.col(CHANGE) == DELETE
    if predicate is not None:
        gone = gone | ~predicate.fill_null(False)
    columns: tuple[tuple[str, str | None], ...] = (*((name, name) for name in rows.names), (GONE, None))
    schema = rows.append(pa.field(GONE, pa.bool_()))
    mark = Project(verb, columns, (gone.alias(GONE),), schema, "fail")
    stage = Stage(table.lineage, mark, verb, place())
    made = latest(table, After(stage, "out"), schema, table.primary, pl.col(GONE), verb)
    kept = tuple((name, name) for name in made.wire.names if name != GONE)
    fields = pa.schema([made.wire.field(name) for name, _ in kept])
    assert isinstance(made.lineage, Tap)
    drop = Stage(made.lineage, Project(verb, kept, (), fields), verb, place(), owner=made.lineage.vertex)
    return type(made)(table.flow, After(drop, "out"), fields, table.primary)
