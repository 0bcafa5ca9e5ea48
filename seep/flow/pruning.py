"""Only the columns that somebody reads travel to a join, and are kept in its state.

Which are read is found backwards, from the sinks: each operator says what it reads of its inputs, given what is read of
its outputs, and each step on the way what it needs for that. Whatever may become a dead letter or a late row that
somebody takes is read whole, since those rows are shown as they came. So are the changes of Tables: an update of a
column that nobody reads is still a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from operators.as_of import AsOfLookup
from operators.expressions import never_raises
from operators.history import AT
from operators.join import IntervalJoin
from operators.joining import SIDES, JoinInput
from operators.stateless import AddTime, Keep, Project, Split, columns_read
from operators.step import Step
from operators.table import GONE
from operators.table_lookup import TableLookup
from operators.window_join import WindowJoin
from seep.flow.checked_times import head_of, never_null
from seep.flow.combining import Sending
from seep.flow.grouping import GROUPING
from seep.flow.logical import Chain, Input, Stage, Vertex, schema_of
from seep.model.arrow import CHANGE

Names = frozenset[str] | None
"""Columns; None: all of them."""
Ways = Sequence[Iterable[Chain]]
Read = dict[tuple[Vertex, str], Names]
"""By vertex and output: the columns that are read. Not there: nobody takes it."""


def prune(
    inputs: Mapping[Vertex, tuple[Input, ...]], ways: Mapping[Vertex, Ways], plans: dict[Vertex, Sending]
) -> dict[Stage, Step]:
    """Narrow the plans; the steps that give out less for it."""
    read: Read = {}
    wanted: dict[Stage, Names] = {}
    for vertex, given in reversed(list(inputs.items())):
        plan = plans[vertex] = _narrowed(vertex, given, ways[vertex], plans[vertex], read)
        for one, schema, found in zip(given, plan.schemas or [one.schema for one in given], ways[vertex], strict=True):
            for way in found:
                names: Names = frozenset(schema.names) | frozenset(getattr(one.grouping, "keys", None) or ())
                for after in reversed(way.stages):
                    if after.output == "errors":
                        names = frozenset()  # if the step refuses rows it gets all columns, whoever asks
                    wanted[after.stage] = _both(wanted.get(after.stage, frozenset()), names)
                    names = _needed(after.stage, names)
                end = (way.tap.vertex, way.tap.output)
                read[end] = _both(read.get(end, frozenset()), names)
    return {
        stage: _projecting(stage.step, names)
        for stage, names in wanted.items()
        if isinstance(stage.step, Project) and names is not None and not _may_refuse(stage)
    }


def _both(one: Names, other: Names) -> Names:
    return None if one is None or other is None else one | other


# --- steps ---------------------------------------------------------------------------------------------------------


def _needed(stage: Stage, names: Names) -> Names:
    """What a step must get so that these columns come out of it."""
    step = stage.step
    if names is None or _may_refuse(stage):
        return None
    match step:
        case Project():
            chosen = _projecting(step, names)
            copied = frozenset(old for _, old in chosen.columns if old is not None)
            return copied.union(*map(columns_read, chosen.computed))
        case AddTime():
            return names - {step.schema.names[-1]} | {step.column, *(column for column, _, _ in step.others)}
    return names.union(*map(columns_read, _expressions(step) or ()))


def _may_refuse(stage: Stage) -> bool:
    """May a row become a dead letter here?"""
    expressions = _expressions(stage.step)
    return expressions is None or not all(never_raises(one, schema_of(stage.parent)) for one in expressions)


def _expressions(step: Step) -> tuple[pl.Expr, ...] | None:
    """All that a step computes; None: a function of a user's, or a check."""
    match step:
        case Project():
            return step.computed
        case Keep():
            return (step.predicate,)
        case Split():
            conditions = tuple(one for _, one in step.conditions if isinstance(one, pl.Expr))
            # A function may look at any column.
            return conditions if len(conditions) == len(step.conditions) else None
        case AddTime():
            return ()
    return None


def _projecting(step: Project, names: frozenset[str]) -> Project:
    # Rows without any column could not be counted.
    names = names & set(step.schema.names) or frozenset(step.schema.names[:1])
    columns = tuple(pair for pair in step.columns if pair[0] in names)
    computed = tuple(expression for expression in step.computed if expression.meta.output_name() in names)
    return replace(step, columns=columns, computed=computed, schema=_only(step.schema, names))


def _only(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    kept = set(names)
    return pa.schema([field for field in schema if field.name in kept])


# --- operators -----------------------------------------------------------------------------------------------------


def _narrowed(vertex: Vertex, given: tuple[Input, ...], ways: Ways, plan: Sending, read: Read) -> Sending:
    names = read.get((vertex, "out"))
    if not names:  # all of it is read, or nothing
        return plan
    head, made = head_of(vertex)
    if GROUPING in vertex.settings:
        kept = names | frozenset(getattr(given[0].grouping, "keys", ()))
        return _told(plan, vertex.make, given, (_only(given[0].schema, kept),))
    if head in (IntervalJoin, WindowJoin):
        whole = [(vertex, f"late_{side}") in read for side in SIDES]
        sides = [
            side if late or not all(never_null(way, frozenset([side.time])) for way in found) else _side(side, names)
            for side, late, found in zip((made["left"], made["right"]), whole, ways, strict=True)
        ]
        # The keys are columns of the left, and always go out.
        arguments = {**made, "left": sides[0], "right": sides[1]}
        return _told(plan, partial(vertex.make.func, head, arguments), given, tuple(side.schema for side in sides))
    if head in (TableLookup, AsOfLookup):
        return _lookup(vertex, head, made, given, ways, plan, read, names)
    return plan


def _side(side: JoinInput, names: frozenset[str]) -> JoinInput:
    columns = tuple((old, new) for old, new in side.columns if new in names or old in side.keys)
    kept = {*side.keys, side.time, *(old for old, _ in columns)}
    return replace(side, schema=_only(side.schema, kept), columns=columns)


def _lookup(
    vertex: Vertex,
    head: Any,
    made: Mapping[str, Any],
    given: tuple[Input, ...],
    ways: Ways,
    plan: Sending,
    read: Read,
    names: frozenset[str],
) -> Sending:
    """The names behind the join are those of the whole rows, so it is told these, and which of them are read."""
    time = made.get("time_column")
    if time is not None:
        checked = all(never_null(way, frozenset([time])) for way in ways[1])
        if (vertex, "late") in read or not checked:
            names |= set(made["stream"].names)
    arguments = {**made, "wanted": tuple(sorted(names))}
    pairing = head(**arguments).pairing
    table = _only(given[0].schema, {*pairing.right.names, CHANGE, AT, GONE})
    stream = _only(given[1].schema, {*pairing.left.names, *([time] if time is not None else [])})
    return _told(plan, partial(vertex.make.func, head, arguments), given, (table, stream))


def _told(plan: Sending, make: Any, given: tuple[Input, ...], schemas: tuple[pa.Schema, ...]) -> Sending:
    unread = [
        name for one, kept in zip(given, schemas, strict=True) for name in one.schema.names if name not in kept.names
    ]
    if not unread:
        return plan
    return replace(plan, make=make, schemas=schemas, unread=tuple(dict.fromkeys(unread)))
