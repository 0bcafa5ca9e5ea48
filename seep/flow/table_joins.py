"""The joins of Tables as vertices: a Stream with a Table, a Table with a Table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from operators.table_join import TableJoin
from operators.table_lookup import TableLookup
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of, ready
from seep.flow.logical import Input, Tap

if TYPE_CHECKING:
    from seep.flow.stream import Stream
    from seep.flow.table import Table


def join_table(stream: Stream, table: Any, how: str) -> Stream:
    from seep.flow.stream import Stream

    keys = key_of(stream, "join_table")
    right = table_of(table, "join_table")
    arguments = {"keys": (right.primary, keys), "inputs": (right.wire, stream.schema), "how": how}
    schema = TableLookup(**arguments).schema
    # The Table is port 0; what comes on the others, however many there are behind a union, is the stream.
    inputs = (Input(right.lineage, right.primary, right.wire), Input(stream.lineage, keys, stream.schema))
    make = partial(ready, TableLookup, arguments)
    vertex = stream._operator("join_table", make, {"out": schema}, inputs, hint_of("join_table", keys))
    return Stream(stream.flow, Tap(vertex, "out"), schema, keys, stream.time)


def join_tables(left: Table, right: Table, how: str) -> Table:
    """On equal primary keys."""
    arguments = {"keys": (left.primary, right.primary), "inputs": (left.wire, right.wire), "how": how}
    schema = TableJoin(**arguments).schema
    inputs = tuple(Input(table.lineage, table.primary, table.wire) for table in (left, right))
    make = partial(ready, TableJoin, arguments)
    vertex = left._operator("join", make, {"out": schema}, inputs, hint_of("join", left.primary))
    return type(left)(left.flow, Tap(vertex, "out"), schema, left.primary)


def table_of(given: Any, verb: str) -> Table:
    from seep.flow.table import Table

    if not isinstance(given, Table):
        raise Misuse(f"{given!r} is no Table; {verb} takes one, such as .key_by(..).table() gives")
    return given
