"""The verbs that need a key, as vertices: what they check, what they give."""

from __future__ import annotations

import copy
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from operators.aggregate import Aggregate
from operators.aggregates import Spec
from operators.apply import Apply, Operator, overrides, states_of
from operators.stateless import Project
from operators.step import DEAD_LETTERS
from operators.table import LatestTable
from operators.window import TumblingWindow
from seep.errors import Misuse
from seep.flow.logical import After, Input, Stage, Tap, Time
from seep.flow.place import place
from seep.flow.windows import Tumbling
from seep.model.arrow import CHANGE, DELETE
from seep.model.duration import positive_microseconds
from seep.model.schema import physical, schema_of

if TYPE_CHECKING:
    from seep.flow.dataset import Dataset
    from seep.flow.stream import Applied, Stream
    from seep.flow.table import Table

GONE = "__gone"
"""Marks, on the way to a Table that is made again, the rows that delete their key."""


def ready(head: Any, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Any:
    """Make a ready operator; its name and ports mean nothing to it."""
    return head(**arguments)


def users(operator: Operator, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Apply:
    """Each partition has its own copy of the user's object."""
    return Apply(operator=copy.copy(operator), name=name, ports=ports, **arguments)


def key_of(stream: Dataset, verb: str) -> tuple[str, ...]:
    if stream.keys is None:
        raise Misuse(f"{verb} works by key; call key_by(..) before it (key_by() for one group over all)")
    return stream.keys


def hint_of(verb: str, keys: tuple[str, ...]) -> str:
    return "-".join([verb, *keys])


def aggregate(stream: Stream, emit: str, aggregates: dict[str, Spec]) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "aggregate")
    refuse_clash(keys, tuple(aggregates))
    arguments = {"keys": keys, "schema": stream.schema, "aggregates": aggregates, "emit": emit}
    schema = Aggregate(**arguments).schema
    inputs = (Input(stream.lineage, keys, stream.schema),)
    make = partial(ready, Aggregate, arguments)
    vertex = stream._operator("aggregate", make, {"out": schema}, inputs, hint_of("aggregate", keys))
    kind = Table if emit == "update" else Stream
    return kind(stream.flow, Tap(vertex, "out"), schema, keys)


def window(stream: Stream, window: Tumbling, emit: str, names: tuple[str, str], aggregates: dict[str, Spec]) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "window")
    refuse_clash((*keys, *names), tuple(aggregates))
    timed, column = (stream, None) if window.by_arrival else stream.timed()
    arguments = {
        "keys": keys,
        "schema": timed.schema,
        "time_column": column,
        "size_us": window.size_us,
        "offset_us": window.offset_us,
        "names": tuple(names),
        "aggregates": aggregates,
        "emit": emit,
        "by_arrival": window.by_arrival,
    }
    schema = TumblingWindow(**arguments).schema
    outputs = {"out": schema, "late": timed.schema, "errors": DEAD_LETTERS}
    inputs = (Input(timed.lineage, keys, timed.schema),)
    vertex = stream._operator(
        "window", partial(ready, TumblingWindow, arguments), outputs, inputs, hint_of("window", keys)
    )
    if emit == "update":
        return Table(stream.flow, Tap(vertex, "out"), schema, (*keys, *names))
    # A window's row is in the window: its time is the last moment before the end.
    return Stream(stream.flow, Tap(vertex, "out"), schema, keys, Time(names[1], "us", -1))


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


def apply(
    stream: Stream,
    operator: Any,
    others: tuple[Stream, ...],
    out: Any,
    every: str | timedelta | None,
    outs: dict[str, Any],
    on_error: str,
) -> Applied:
    from seep.flow.stream import Applied

    made = operator() if isinstance(operator, type) else operator
    if not isinstance(made, Operator) or not overrides(made, "on_row"):
        raise Misuse(f"{operator!r} must be a seep.Operator with its own on_row")
    streams = (stream, *others)
    keyed = stream.keys is not None
    if any((other.keys is not None) != keyed for other in others):
        raise Misuse("either all inputs are keyed or none is")
    if keyed:
        kinds = [[one.schema.field(key).type for key in one.keys or ()] for one in streams]
        if any(kind != kinds[0] for kind in kinds):
            raise Misuse(f"the inputs are keyed by different types: {kinds}")
    else:
        wants = [name for name in ("on_timer", "on_tick", "on_epoch") if overrides(made, name)]
        if states_of(made) or wants or every is not None:
            raise Misuse("states, timers, ticks and on_epoch belong to keys; call key_by(..) before it")
    if (every is not None) != overrides(made, "on_tick"):
        raise Misuse("every= and on_tick belong together; give both or neither")
    if {"out", "errors", "late"} & set(outs):
        raise Misuse("'out', 'errors' and 'late' are no names for side outputs")
    outputs = {"out": schema_of(out), **{name: schema_of(given) for name, given in outs.items()}}
    arguments = {
        "keys": tuple(one.keys or () for one in streams) if keyed else None,
        "inputs": tuple(one.schema for one in streams),
        "outputs": outputs,
        "every_ms": None if every is None else max(1, positive_microseconds(every) // 1000),
        "on_error": on_error,
    }
    schemas = {**{name: physical(schema) for name, schema in outputs.items()}, "errors": DEAD_LETTERS}
    inputs = tuple(Input(one.lineage, one.keys, one.schema) for one in streams)
    hint = hint_of("apply", stream.keys or ())
    stateful = bool(states_of(made)) or overrides(made, "on_timer")
    vertex = stream._operator("apply", partial(users, made, arguments), schemas, inputs, hint, stateful)
    return Applied(stream.flow, Tap(vertex, "out"), schemas["out"], None, kept_time(stream, schemas["out"]))


def kept_time(stream: Dataset, schema: pa.Schema) -> Time | None:
    """Behind a user's function event time stays bound to its column, if that is still there in the same type."""
    time = stream.time
    if time is None:
        return None
    at = schema.get_field_index(time.column)
    return time if at >= 0 and schema.field(at).type == stream.schema.field(time.column).type else None


def refuse_clash(taken: tuple[str, ...], names: tuple[str, ...]) -> None:
    for name in names:
        if name in taken or name == CHANGE:
            raise Misuse(f"{name!r} is taken already; call the aggregate otherwise")
