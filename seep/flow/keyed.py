"""What the verbs that need a key share, and `apply`."""

from __future__ import annotations

import copy
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from operators.aggregates import Spec
from operators.apply import Apply, Operator, overrides, states_of
from operators.batch_operator import BatchOperator
from operators.expressions import one_value
from operators.step import DEAD_LETTERS, describe
from seep.errors import Misuse
from seep.flow.columnar import apply_batches
from seep.flow.logical import Input, Tap, Time
from seep.model.arrow import CHANGE
from seep.model.duration import positive_microseconds
from seep.model.schema import physical, refuse_names, schema_of

if TYPE_CHECKING:
    from seep.flow.broadcasting import Broadcast
    from seep.flow.dataset import Dataset
    from seep.flow.stream import Applied, Stream


def ready(head: Any, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Any:
    """Make a ready operator; its name and ports mean nothing to it."""
    return head(**arguments)


def named(head: Any, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Any:
    """Make a ready operator that says its name in dead letters."""
    return head(**arguments, name=name)


def users(operator: Operator, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Apply:
    """Each partition has its own copy of the user's object."""
    return Apply(operator=copy.copy(operator), name=name, ports=ports, **arguments)


def key_of(stream: Dataset, verb: str) -> tuple[str, ...]:
    if stream.keys is None:
        raise Misuse(f"{verb} works by key; call key_by(..) before it (key_by() for one group over all)")
    return stream.keys


def hint_of(verb: str, keys: tuple[str, ...]) -> str:
    return "-".join([verb, *keys])


def check_aggregates(schema: pa.Schema, aggregates: dict[str, Spec]) -> list[pl.Expr]:
    """The expressions of these aggregates, each of which is one value for each row."""
    if not aggregates:
        raise Misuse("no aggregates are given, such as items=count()")
    computed: list[pl.Expr] = []
    for name, spec in aggregates.items():
        if not isinstance(spec, Spec):
            raise Misuse(f"{name}={spec!r} is no aggregate; give count(), total('x'), ...")
        computed += spec.expressions(name).values()
    for expression in computed:
        one_value(schema, expression)
    return computed


def refuse_clash(taken: tuple[str, ...], names: tuple[str, ...]) -> None:
    refuse_names(names)
    for name in names:
        if name in taken or name == CHANGE:
            raise Misuse(f"{name!r} is taken already; call the aggregate otherwise")


def refuse_change(columns: tuple[str, ...]) -> None:
    if CHANGE in columns:
        raise Misuse(f"a Table needs the column {CHANGE!r} itself; rename it, or give other names=")


def kept_time(stream: Dataset, schema: pa.Schema) -> Time | None:
    """Behind a user's function event time stays bound to its column, if that is still there in the same type."""
    time = stream.time
    if time is None:
        return None
    for part in time.parts:
        at = schema.get_field_index(part.column)
        if at < 0 or schema.field(at).type != stream.schema.field(part.column).type:
            return None
    return time


def _new(kind: type) -> Any:
    try:
        return kind()
    except Exception as error:  # of a user's constructor, or for want of its arguments
        why = describe(error)
        raise Misuse(
            f"{kind.__name__}() cannot be made: {why}; give an object, apply({kind.__name__}(..), ..)"
        ) from error


def apply(
    stream: Stream,
    operator: Any,
    others: tuple[Stream | Broadcast, ...],
    out: Any,
    every: str | timedelta | None,
    outs: dict[str, Any] | None,
    on_error: str,
) -> Applied:
    from seep.flow.broadcasting import Broadcast
    from seep.flow.stream import Applied

    made = _new(operator) if isinstance(operator, type) else operator
    columnar = isinstance(made, BatchOperator)
    if not columnar and (not isinstance(made, Operator) or not overrides(made, "on_row")):
        raise Misuse(f"{operator!r} must be a seep.Operator with its own on_row, or a seep.BatchOperator")
    streams = (stream, *others)
    broadcast = {port: one.keys for port, one in enumerate(streams) if isinstance(one, Broadcast)}
    if any(isinstance(one, Broadcast) and one.table for one in streams):
        raise Misuse(
            "apply reads the latest row of each key; broadcast a stream to it, such as .changes(), or join_table"
        )
    partitioned = [one for one in streams if not isinstance(one, Broadcast)]
    keyed = stream.keys is not None
    if any((one.keys is not None) != keyed for one in partitioned):
        raise Misuse("either all inputs are keyed or none is")
    if keyed:
        kinds = [[one.schema.field(key).type for key in one.keys or ()] for one in partitioned]
        if any(kind != kinds[0] for kind in kinds):
            raise Misuse(f"the inputs are keyed by different types: {kinds}")
    elif not columnar:
        wants = [name for name in ("on_timer", "on_tick", "on_epoch") if overrides(made, name)]
        if states_of(made) or wants or every is not None:
            raise Misuse("states, timers, ticks and on_epoch belong to keys; call key_by(..) before it")
    if columnar and broadcast:
        raise Misuse("a BatchOperator takes no broadcast() input; use an Operator, or join_table")
    if columnar and every is not None:
        raise Misuse("a BatchOperator has no on_tick; leave out every=")
    if not columnar and (every is not None) != overrides(made, "on_tick"):
        raise Misuse("every= and on_tick belong together; give both or neither")
    outs = {} if outs is None else outs
    if not isinstance(outs, dict):
        raise Misuse(f"outs={outs!r}; give the side outputs by name, such as outs={{'alerts': Alert}}")
    if {"out", "errors", "late"} & set(outs):
        raise Misuse("'out', 'errors' and 'late' are no names for side outputs")
    outputs = {"out": schema_of(out), **{name: schema_of(given) for name, given in outs.items()}}
    if columnar:
        return apply_batches(made, tuple(partitioned), outputs, on_error)
    arguments = {
        "keys": tuple(one.keys or () for one in streams) if keyed else None,
        "inputs": tuple(one.schema for one in streams),
        "outputs": outputs,
        "every_ms": None if every is None else max(1, positive_microseconds(every) // 1000),
        "on_error": on_error,
        "broadcast": broadcast,
    }
    schemas = {**{name: physical(schema) for name, schema in outputs.items()}, "errors": DEAD_LETTERS}
    inputs = tuple(
        Input(one.lineage, one.keys, one.schema, broadcast=port in broadcast, timeless=port in broadcast)
        for port, one in enumerate(streams)
    )
    hint = hint_of("apply", stream.keys or ())
    stateful = bool(states_of(made) or broadcast) or overrides(made, "on_timer")
    vertex = stream._operator("apply", partial(users, made, arguments), schemas, inputs, hint, stateful)
    return Applied(stream.flow, Tap(vertex, "out"), schemas["out"], None, kept_time(stream, schemas["out"]))
