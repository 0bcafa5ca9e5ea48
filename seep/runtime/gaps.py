"""How long output stands still around a Replace: what a user of the results feels of a change.

Looked at from the far end. While anything is replaced, and until a sink has taken the first epoch of the new
partitions, the longest time in which it took none is kept: one value for each Replace and sink partition. Changes that
overlap count as one.
"""

from __future__ import annotations

from collections.abc import Iterable

from seep.model.ids import FOREVER, PartitionId
from seep.partition.histogram import Histogram
from seep.partition.sink import SinkPartition
from seep.partition.worker import Partition
from seep.protocol.journal import Journal


class Gaps:
    def __init__(self) -> None:
        self.seen: dict[PartitionId, Histogram] = {}
        self._moved: dict[PartitionId, tuple[int, float]] = {}
        """The last epoch each sink partition took, and when."""
        self._longest_ms: dict[PartitionId, float] = {}
        """Of the change that is under way."""

    def look(self, partitions: Iterable[Partition], journal: Journal, now_ms: float) -> None:
        """To be called with every turn of the worker's loop."""
        changing = any(replace.operator for replace in journal.replaces)
        for partition in partitions:
            if isinstance(partition, SinkPartition) and partition.running:
                self._look(partition, changing, journal, now_ms)

    def _look(self, sink: SinkPartition, changing: bool, journal: Journal, now_ms: float) -> None:
        who, taken = sink.entry.partition, sink.inputs.taken
        before, since_ms = self._moved.get(who, (taken, now_ms))
        if who not in self._moved or taken != before:
            self._moved[who] = (taken, now_ms)
        if changing or who in self._longest_ms:
            self._longest_ms[who] = max(self._longest_ms.get(who, 0.0), now_ms - since_ms)
        if who in self._longest_ms and not changing and (taken >= _begun(journal) or sink.ended):
            self.seen[who] = self.seen.get(who, Histogram()).with_one(self._longest_ms.pop(who))


def _begun(journal: Journal) -> int:
    """The epoch in which the youngest partitions begin to count."""
    return max((entry.first for entry in journal.entries.values() if entry.first < FOREVER), default=0)
