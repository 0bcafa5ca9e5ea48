"""Rows that an operator's expressions would fail on are dead letters before they get to it.

A row that is in a group, or has changed a Table, cannot be taken out again: where an expression may raise, it is tried
before the rows travel. Where it cannot, nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from operators.expressions import never_raises
from operators.stateless import Try
from seep.flow.dataset import Dataset, known_on_error
from seep.flow.logical import After, Stage, Vertex
from seep.flow.place import place

if TYPE_CHECKING:
    from seep.flow.stream import Stream

Made = TypeVar("Made", bound=Dataset)


def guarded(
    stream: Stream, verb: str, expressions: Iterable[pl.Expr], on_error: str, build: Callable[[Stream], Made]
) -> Made:
    """What `build` makes of the rows on which none of these expressions raises."""
    from seep.flow.stream import Stream

    known_on_error(on_error)
    risky = tuple(one for one in expressions if not never_raises(one, stream.schema))
    if not risky:
        return build(stream)
    stage = Stage(stream.lineage, Try(verb, risky, stream.schema, on_error), verb, place())
    made = build(Stream(stream.flow, After(stage, "out"), stream.schema, stream.keys, stream.time))
    vertex = made._maker()
    assert isinstance(vertex, Vertex)
    stage.owner, vertex.guard = vertex, stage
    return made
