"""The joins of Tables as vertices: a Stream with a Table, a Table with a Table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from operators.as_of import AsOfLookup
from operators.foreign_join import ForeignJoin
from operators.retract import signed_schema
from operators.table import GONE
from operators.table_join import TableJoin
from operators.table_lookup import TableLookup
from seep.errors import Misuse
from seep.flow.broadcasting import Broadcast
from seep.flow.dataset import known_columns
from seep.flow.keyed import hint_of, key_of, ready
from seep.flow.logical import Input, Tap
from seep.flow.table_groups import retracted
from seep.flow.tabled import latest, without_mark

if TYPE_CHECKING:
    from seep.flow.stream import Stream
    from seep.flow.table import Table


def join_table(stream: Stream, table: Table | Broadcast, how: str) -> Stream:
    from seep.flow.stream import Stream

    told = isinstance(table, Broadcast)
    keys = _stream_keys(stream, table)
    arguments: dict[str, Any] = {"keys": (table.keys, keys), "inputs": (table.wire, stream.schema), "how": how}
    if told:
        arguments |= {"replicated": True, "changes": table.table}
    schema = TableLookup(**arguments).schema
    # The Table is port 0; what comes on the others, however many there are behind a union, is the stream.
    listened = table.input if told else Input(table.lineage, table.keys, table.wire)
    inputs = (replace(listened, timeless=True), Input(stream.lineage, None if told else keys, stream.schema))
    make = partial(ready, TableLookup, arguments)
    vertex = stream._operator("join_table", make, {"out": schema}, inputs, hint_of("join_table", keys))
    return Stream(stream.flow, Tap(vertex, "out"), schema, stream.keys, stream.time)


def join_as_of(stream: Stream, table: Table | Broadcast, how: str) -> Stream:
    from seep.flow.stream import Stream

    told = isinstance(table, Broadcast)
    keys = _stream_keys(stream, table)
    if table.versions is None:
        raise Misuse("as_of=True needs the versions of a Table; make it by .table(history='5m')")
    source = replace(table.versions.source, broadcast=told)
    timed, column = stream.timed()
    arguments: dict[str, Any] = {
        "keys": (table.keys, keys),
        "inputs": (source.schema, timed.schema),
        "stream": stream.schema,
        "time_column": column,
        "history_us": table.versions.history_us,
        "how": how,
        "replicated": told,
    }
    schemas = AsOfLookup(**arguments).schemas
    inputs = (source, Input(timed.lineage, None if told else keys, timed.schema))
    make = partial(ready, AsOfLookup, arguments)
    vertex = stream._operator("join_table", make, schemas, inputs, hint_of("join_table", keys))
    return Stream(stream.flow, Tap(vertex, "out"), schemas["out"], stream.keys, stream.time)


def _stream_keys(stream: Stream, table: Table | Broadcast) -> tuple[str, ...]:
    """The columns that pair with the Table's key: the stream's own key, by position; of a stream without one, which
    meets a broadcast where it is, the columns of the same names."""
    if stream.keys is not None or not isinstance(table, Broadcast):
        return key_of(stream, "join_table")
    for name in table.keys:
        if name not in stream.schema.names:
            raise Misuse(f"the stream has no key, and no column {name!r} to pair with; call key_by(..) before it")
    return table.keys


def join_tables(left: Table, right: Table, how: str) -> Table:
    """On equal primary keys."""
    arguments: dict[str, Any] = {"keys": (left.primary, right.primary), "inputs": (left.wire, right.wire), "how": how}
    schema = TableJoin(**arguments).schema
    inputs = tuple(Input(table.lineage, table.primary, table.wire) for table in (left, right))
    make = partial(ready, TableJoin, arguments)
    vertex = left._operator("join", make, {"out": schema}, inputs, hint_of("join", left.primary))
    return type(left)(left.flow, Tap(vertex, "out"), schema, left.primary)


def join_foreign(left: Table, right: Table, on: str, how: str) -> Table:
    """By a column of the left that names the right's primary key."""
    known_columns(left.schema, (on,))
    if len(right.primary) != 1:
        raise Misuse(f"on={on!r} is one column, but {right!r} has the key {', '.join(right.primary) or 'of no column'}")
    arguments: dict[str, Any] = {
        "keys": (right.primary, on),
        "inputs": (right.wire, signed_schema(left.schema)),
        "primary": left.primary,
        "how": how,
    }
    schema = ForeignJoin(**arguments).schema
    signed = retracted(left, left.schema)
    inputs = (Input(right.lineage, right.primary, right.wire), Input(Tap(signed, "out"), (on,), signed.outputs["out"]))
    make = partial(ready, ForeignJoin, arguments)
    found = left._operator("join", make, {"out": schema, "gone": schema}, inputs, f"by-{on}")
    # What is gone comes on the first port, so what is there has the last word.
    answers = tuple(Input(Tap(found, output), left.primary, schema) for output in ("gone", "out"))
    joined = latest(left, answers, schema, left.primary, pl.col(GONE), "join")
    assert isinstance(joined.lineage, Tap)
    signed.owner = found.owner = joined.lineage.vertex
    return without_mark(joined, "join")


def table_of(given: Any, verb: str, also: tuple[type, ...] = ()) -> Any:
    from seep.flow.table import Table

    if not isinstance(given, (Table, *also)):
        raise Misuse(f"{given!r} is no Table; {verb} takes one, such as .key_by(..).table() gives")
    return given
