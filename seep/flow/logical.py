"""The declared graph, as verbs build it: vertices that will run, and the lineage of each stream back to them.

Stateless verbs are stages, not vertices: they run inside the vertex before them. A union is no vertex either; each
branch goes to the receiver on its own port, and stages behind a union run in every branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from operators.step import Step
from seep.flow.grouping import Grouping


@dataclass(frozen=True, slots=True)
class Time:
    """Event time is this column (an integer column has a unit), plus an offset."""

    column: str
    unit: str = "us"
    offset_us: int = 0
    others: tuple[Time, ...] = ()
    """Behind a join: the latest of these too, where they are not null."""

    @property
    def parts(self) -> tuple[Time, ...]:
        """Each column that it is made of."""
        return (Time(self.column, self.unit, self.offset_us), *self.others)

    def renamed(self, names: Mapping[str, str]) -> Time | None:
        """The same time when its columns are called otherwise; None when one of them is gone."""
        if any(part.column not in names for part in self.parts):
            return None
        others = tuple(Time(names[part.column], part.unit, part.offset_us) for part in self.others)
        return Time(names[self.column], self.unit, self.offset_us, others)


@dataclass(eq=False)
class Vertex:
    """A source, a stateful operator or a sink."""

    kind: str
    """``source``, ``operator`` or ``sink``."""
    verb: str
    place: str
    outputs: Mapping[str, pa.Schema]
    make: Any
    """source: the connector; operator: (name, ports) -> Head; sink: the connector."""
    inputs: tuple[Input, ...] = ()
    name: str | None = None
    hint: str = ""
    """What an unnamed vertex is called."""
    stateful: bool = False
    owner: Vertex | None = None
    """The vertex is part of that one's verb, and is named after it."""
    start: int = 1
    minimum: int = 1
    maximum: int = 16
    policy: Any = None
    """By which its number of partitions is changed; None: only by hand."""
    settings: dict[str, Any] = field(default_factory=dict)
    guard: Stage | None = None
    """Where rows that its expressions fail on are refused, before they come in."""


@dataclass(eq=False)
class Stage:
    """A stateless verb in its place."""

    parent: Lineage
    step: Step
    verb: str
    place: str
    name: str | None = None
    owner: Vertex | None = None
    """The stage is part of this vertex's verb, not a verb of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Tap:
    """An output of a vertex."""

    vertex: Vertex
    output: str


@dataclass(frozen=True, slots=True, eq=False)
class After:
    """An output of a stage."""

    stage: Stage
    output: str


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """A union, in the order of its branches."""

    parts: tuple[Lineage, ...]


Lineage = Tap | After | Merge


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """What a vertex listens to, and how it is routed: by key columns, or (None) where the rows came from."""

    lineage: Lineage
    keys: tuple[str, ...] | None
    schema: pa.Schema
    grouping: Grouping | None = None
    """Neither of the two."""
    broadcast: bool = False
    """Every partition gets every row."""
    timeless: bool = False
    """Its rows are only looked up: their times hold nobody back."""


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """One way from a vertex's output through stages."""

    tap: Tap
    stages: tuple[After, ...] = ()


def chains(lineage: Lineage) -> Iterator[Chain]:
    """Every way that leads to this stream, in the order of the branches."""
    match lineage:
        case Tap():
            yield Chain(lineage)
        case After(stage, _):
            for chain in chains(stage.parent):
                yield Chain(chain.tap, (*chain.stages, lineage))
        case Merge(parts):
            for part in parts:
                yield from chains(part)


def schema_of(lineage: Lineage) -> pa.Schema:
    """The columns of a stream, as its verbs declared them."""
    match lineage:
        case Tap(vertex, output):
            return vertex.outputs[output]
        case After(stage, output):
            return stage.step.schemas[output]
    return schema_of(lineage.parts[0])


def has_union(lineage: Lineage) -> bool:
    while isinstance(lineage, After):
        lineage = lineage.stage.parent
    return isinstance(lineage, Merge)
