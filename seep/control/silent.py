"""Workers that were lost by their silence and may live on: stopped, frozen, cut off.

Fences keep out what they do later. But one that is stopped inside a write to a directory keeps the lock of its
partition, for which whoever takes over waits without end: such a one stands in the way, and is ended (decision 36).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from seep.model.ids import PartitionId
from seep.protocol.journal import Journal
from seep.protocol.messages import Status


class Silent:
    def __init__(self) -> None:
        self._lost: dict[str, tuple[float, tuple[PartitionId, ...]]] = {}
        """Since when, and what each had."""

    def __len__(self) -> int:
        return len(self._lost)

    def note(self, workers: Collection[str], journal: Journal, now_ms: float) -> None:
        for worker in workers:
            theirs = tuple(p for p, entry in journal.entries.items() if entry.worker == worker)
            self._lost[worker] = now_ms, theirs

    def in_the_way(
        self,
        journal: Journal,
        statuses: Mapping[PartitionId, Status],
        heard: Collection[str],
        patient_since_ms: float,
    ) -> list[str]:
        """Those lost before then for whose partitions others wait still, by a journal that is written: a controller
        that was deposed and does not know it hears nobody, and must end nobody. Each is named once."""
        found = []
        for worker, (lost_ms, theirs) in sorted(self._lost.items()):
            theirs = tuple(p for p in theirs if p in journal.entries)
            taken = [p for p in theirs if journal.entries[p].worker in heard]
            waiting = [p for p in taken if p not in statuses or statuses[p].epoch < 0]
            if worker in heard or (len(taken) == len(theirs) and not waiting):
                del self._lost[worker]
            elif waiting and lost_ms < patient_since_ms:
                del self._lost[worker]
                found.append(worker)
        return found
