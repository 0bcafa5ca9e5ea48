"""The journal: the one truth about which partitions exist, in the store, changed only by compare-and-set.

It is declarative. Workers run what it names; partitions subscribe, pin, hand over, seal and stop by what it says;
the controller's next step is always a function of the journal and of the latest Status of each partition. So a
lost message costs a retry, and a new controller goes on where the old one was killed.

    shadow --commit--> live --commit of its own Replace--> sealed --drained--> (gone)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seep.model.care import Spot
from seep.model.ids import FOREVER, Generation, KeyRange, PartitionId

SHADOW = "shadow"
LIVE = "live"
SEALED = "sealed"
NO_SPOTS: frozenset[Spot] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    """A partition: its key range, its life ``[first, last]`` in epochs, and where it runs."""

    partition: PartitionId
    key_range: KeyRange
    first: int
    last: int
    """FOREVER while it is open."""
    role: str
    generation: Generation
    worker: str
    """Empty: waiting for a slot."""
    base: tuple[tuple[PartitionId, int], ...] = ()
    """Checkpoints (partition, version) it starts from when it has none of its own."""
    base_epoch: int = 0
    """τ of the base."""
    deaths: int = 0
    """Not 0: its process died so often without getting any further that a row is suspected of it."""
    reached: int = -1
    """With `deaths`: the epoch that it got to."""
    heir_of: Generation | None = None
    """With `deaths`: the generation before this one, which has left a note ..."""
    died: bool = False
    """... and its process ended by itself."""

    def alive_after(self, epoch: int) -> bool:
        """Does it own some epoch later than this one?"""
        return self.role != SHADOW and self.last > epoch and self.last >= self.first


class Code(NamedTuple):
    """What an operator runs from an epoch on."""

    first: int
    name: str


@dataclass(frozen=True, slots=True)
class Replace:
    """An intent: these partitions by those. It stands in the journal from the first step to the commit."""

    number: int
    operator: str
    """Empty: nothing is replaced; every operator's partitions keep a checkpoint of epoch `at` (a savepoint)."""
    old: tuple[PartitionId, ...]
    ranges: tuple[KeyRange, ...]
    handover: bool
    """Output is not the same bytes (sources, sinks): one E must hold, the old ones stop before the new begin."""
    at: int = 0
    """Merge: every old partition keeps a checkpoint at exactly this epoch. Hand-over: E-1 (0: not decided yet)."""
    new: tuple[PartitionId, ...] = ()
    """The shadows, once they exist."""
    code: str = ""
    """Not empty: an upgrade. The old ones stop, run on to `at`, and stay; from the epoch after it on they run this."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A row that killed every process that ran it. Nobody runs it again, in this or any later replay."""

    operator: str
    epoch: int
    """The one it is in; of a source's row, the last one before it that read anything (its own has no number yet)."""
    spot: Spot
    shown: str
    """The step that runs it, as users know it."""
    after: bool = False
    """It is a source's."""

    def __str__(self) -> str:
        when = f"the epoch after {self.epoch}" if self.after else f"epoch {self.epoch}"
        what = "call" if self.spot.is_call else "row"
        return f"{what} {self.spot.bucket}:{self.spot.position} of {self.shown} in {when}"


@dataclass(frozen=True, slots=True)
class Journal:
    version: int = 0
    term: int = 0
    entries: Mapping[PartitionId, Entry] = field(default_factory=dict)
    replaces: tuple[Replace, ...] = ()
    next_number: Mapping[str, int] = field(default_factory=dict)
    next_replace: int = 1
    next_generation: int = 1
    stopping: str = ""
    """Not empty: the flow is being stopped, and why (``stop``, ``drain``, or a failure's report)."""
    begins: tuple[int, ...] = ()
    """For each turn of sources after the first, which waits for nobody: the first epoch in which they may have rows;
    FOREVER: the Tables that they wait for are still being loaded."""
    poisons: tuple[Poison, ...] = ()
    codes: Mapping[str, tuple[Code, ...]] = field(default_factory=dict)
    """By operator, of those that were upgraded: what each runs since when, in order. Before that: the flow's own."""

    def beginning(self, turn: int) -> int:
        """The first epoch in which a source of this turn may have rows."""
        return self.begins[turn - 1] if turn else 0

    def of(self, operator: str) -> list[Entry]:
        """The operator's entries, by key range, then life."""
        found = [e for e in self.entries.values() if e.partition.operator == operator]
        return sorted(found, key=lambda e: (e.key_range.low, e.first, e.partition.number))

    def live(self, operator: str) -> list[Entry]:
        return [e for e in self.of(operator) if e.role == LIVE]

    def shown(self, partition: PartitionId) -> str:
        """As users know it: its position now among the operator's live partitions. Not by its number, which is written
        the same way and means another one as soon as the operator has been changed."""
        entry = self.entries.get(partition)
        if entry is None:
            return f"a partition of {partition.operator} that is gone"
        if entry.role != LIVE:
            low, high = entry.key_range
            return f"the {'new' if entry.role == SHADOW else 'old'} {partition.operator} of buckets {low}-{high - 1}"
        return f"{partition.operator}/{self.live(partition.operator).index(entry)}"

    def skips(self, operator: str, epoch: int) -> frozenset[Spot]:
        """The rows of this epoch that are not to be run (a source: of the epoch that follows this one)."""
        if not self.poisons:
            return NO_SPOTS
        return frozenset(one.spot for one in self.poisons if one.operator == operator and one.epoch == epoch)

    @property
    def fixed(self) -> int:
        """The epoch that somebody reads of the whole flow (a savepoint, an audit); -1: nobody does."""
        return next((replace.at for replace in self.replaces if not replace.operator), -1)

    def replacing(self, partition: PartitionId) -> Replace | None:
        """The pending Replace that this partition is an old part of."""
        for replace in self.replaces:
            if partition in replace.old:
                return replace
        return None


def tiles(ranges: Iterable[KeyRange], low: int, high: int) -> bool:
    """Do these ranges cover [low, high) with no gap and no overlap?

    >>> tiles([KeyRange(0, 5), KeyRange(5, 9)], 0, 9), tiles([KeyRange(0, 5), KeyRange(4, 9)], 0, 9)
    (True, False)
    """
    edge = low
    for key_range in sorted(ranges):
        if key_range.low != edge:
            return False
        edge = key_range.high
    return edge == high


__all__ = ["FOREVER", "LIVE", "SEALED", "SHADOW", "Code", "Entry", "Journal", "Poison", "Replace", "tiles"]
