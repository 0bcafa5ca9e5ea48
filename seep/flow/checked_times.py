"""Which times can be relied on: a row without a usable time becomes a dead letter, which holds the whole row, so what a
sender leaves out or folds must not be such a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from operators.as_of import AsOfLookup
from operators.dedupe import Dedupe
from operators.join import IntervalJoin
from operators.rowwise import KeepRows
from operators.stateless import AddTime, EventTime, Keep, Project, Split, Try
from operators.table_lookup import TableLookup
from operators.window_join import WindowJoin
from operators.window_top import WindowTop
from seep.flow.grouping import GROUPING
from seep.flow.logical import Chain, Input, Vertex, chains

_PASSING = {Dedupe: 0, WindowTop: 0, TableLookup: 1, AsOfLookup: 1}
"""Operators that give out the rows of an input with their columns as they are: which input."""
JOINS = (IntervalJoin, WindowJoin)


def never_null(chain: Chain, columns: frozenset[str]) -> bool:
    """Is in each row at least one of these times there, checked on the way or made by a window, with nothing behind it
    that could change it?"""
    for after in reversed(chain.stages):
        step = after.stage.step
        match step:
            case EventTime() if step.column in columns:
                return after.output == "out"
            case Project():
                columns = frozenset(old for new, old in step.columns if new in columns and old is not None)
            case AddTime() if step.schema.names[-1] in columns:
                parts = {step.column, *(column for column, _, _ in step.others)}
                columns = columns - {step.schema.names[-1]} | parts
            case EventTime() | AddTime() | Keep() | KeepRows() | Split() | Try():
                if after.output == "errors":
                    return False
            case _:
                return False
    return chain.tap.output == "out" and bool(columns) and _made_by(chain.tap.vertex, columns)


def _made_by(vertex: Vertex, columns: frozenset[str]) -> bool:
    """The same of what an operator gives out."""
    if GROUPING in vertex.settings:
        return _comes_in(vertex.inputs[0], columns)
    head, made = head_of(vertex)
    if vertex.verb == "window":
        return bool(columns & set(made.get("names", ())))
    if head in _PASSING:
        given = vertex.inputs[_PASSING[head]]
        return _comes_in(given, columns & set(given.schema.names))
    return head in JOINS and _joined(vertex, made, columns)


def _joined(vertex: Vertex, made: Mapping[str, Any], columns: frozenset[str]) -> bool:
    """A row that is given out alone has the time of its own side only."""
    sides = []
    for given, side in zip(vertex.inputs, (made["left"], made["right"]), strict=True):
        # Where there is no left row its keys are those of the right one.
        own = {old for old, new in side.columns if new in columns and new not in made["left"].keys}
        sides.append(_comes_in(given, frozenset(own)))
    return {"inner": any(sides), "left": sides[0], "right": sides[1], "full": all(sides)}[str(made["how"])]


def _comes_in(given: Input, columns: frozenset[str]) -> bool:
    return bool(columns) and all(never_null(way, columns) for way in chains(given.lineage))


def head_of(vertex: Vertex) -> tuple[Any, Mapping[str, Any]]:
    """The class of a ready operator and what it is made with; (None, {}) for others."""
    made = vertex.make
    if isinstance(made, partial) and len(made.args) == 2 and isinstance(made.args[1], dict):
        return made.args[0], made.args[1]
    return None, {}
