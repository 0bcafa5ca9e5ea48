"""Which worker gets a partition: one without the same operator first, then the least loaded, then by name."""

from __future__ import annotations

from collections.abc import Iterable

from seep.model.ids import PartitionId
from seep.protocol.journal import Journal


def idle(journal: Journal, workers: Iterable[str]) -> list[str]:
    """Those of the workers that run nothing."""
    used = {entry.worker for entry in journal.entries.values()}
    return [worker for worker in workers if worker not in used]


def place(journal: Journal, partition: PartitionId, workers: Iterable[str]) -> str:
    """The worker to run it on; empty when there is none."""
    same: dict[str, int] = {}
    load: dict[str, int] = {}
    for entry in journal.entries.values():
        if entry.partition != partition:
            load[entry.worker] = load.get(entry.worker, 0) + 1
            if entry.partition.operator == partition.operator:
                same[entry.worker] = same.get(entry.worker, 0) + 1
    return min(workers, key=lambda w: (same.get(w, 0), load.get(w, 0), w), default="")
