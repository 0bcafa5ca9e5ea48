"""A checkpoint: everything a partition must have to go on after epoch τ, as one value.

An incremental checkpoint names its parent version and holds only what changed since; a chain starts with a full
one. Each generation of a partition has version numbers of its own, higher than those before: none is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import NamedTuple

from seep.model.batch import Batch, State
from seep.model.epoch import Progress
from seep.model.ids import Generation, KeyRange, PartitionId


@dataclass(frozen=True, slots=True)
class Buffered:
    """One epoch's output on one edge (an entry of β): its rows, uncut, and its announcement."""

    progress: Progress
    batches: tuple[Batch, ...]


class Point(NamedTuple):
    """A durable checkpoint, as its partition remembers it."""

    version: int
    epoch: int
    chain: tuple[int, ...]
    """The versions it is restored from, the full one first, itself last."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    partition: PartitionId
    generation: Generation
    key_range: KeyRange
    version: int
    parent: int
    """0: this one is full."""
    epoch: int
    now_ms: int
    watermark: int
    ended: bool
    state: State | None
    buffers: Mapping[str, tuple[Buffered, ...]] = field(default_factory=dict)
    """By edge: the entries added since the parent (full: all of them)."""
    trimmed: Mapping[str, Progress] = field(default_factory=dict)
    """By edge: the announcement as of the newest entry that is gone."""
    counts: Mapping[str, int] = field(default_factory=dict)
    idle: bool = False
    before: Point | None = None
    """The newest durable one when this was made: what restore falls back to, should this one be damaged."""

    def part(self, key_range: KeyRange) -> Checkpoint:
        """What one that takes over these keys starts from: their state; it begins with an empty β."""
        return with_fields(self, state=None if self.state is None else self.state.part(key_range), buffers={})
