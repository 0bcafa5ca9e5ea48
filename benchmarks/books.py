"""What the sources of a running job have cut: of each epoch its rows, and when they were read.

The epoch log is trimmed as checkpoints become durable, so it is followed while the job runs; without its lock, for
which the source would wait before it announces an epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from seep.model.ids import PartitionId
from seep.running import Job
from seep.runtime.stores.base import Tail


class Books:
    def __init__(self, job: Job, sources: Iterable[str]) -> None:
        self.job = job
        self.sources = tuple(sources)
        self._cuts: dict[tuple[str, int, int], Mapping[str, Any]] = {}
        self._store = job.directory.store()
        self._tails: dict[PartitionId, Tail] = {}

    def look(self) -> None:
        for source in self.sources:
            for number in range(self.job.journal.next_number.get(source, 0)):
                who = PartitionId(source, number)
                if who not in self._tails:
                    self._tails[who] = self._store.tail(who)
                self._cuts |= {(source, number, epoch): record for epoch, record in self._tails[who].more()}

    def given(self, splits: int) -> dict[str, list[int]]:
        """By source, how many rows each split has given."""
        found = {source: [0] * splits for source in self.sources}
        for (source, _, _), record in self._cuts.items():
            for split, known in record["splits"].items():
                if known[1] is not None:
                    found[source][int(split)] = max(found[source][int(split)], known[1][0])
        return found

    def began_ms(self) -> dict[tuple[str, int], int]:
        """When each split was first read, on the wall clock."""
        found = {}
        for (source, _, _), record in self._cuts.items():
            for split, known in record["splits"].items():
                if known[1] is not None:
                    found[source, int(split)] = known[1][1]
        return found

    def rows_upto(self, epochs: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """For each of these epochs: rows read in it and before."""
        by_epoch: dict[int, int] = defaultdict(int)
        for (_, _, epoch), record in self._cuts.items():
            by_epoch[epoch] += record["rows"]
        known = np.array(sorted(by_epoch), np.int64)
        total = np.concatenate([[0], np.cumsum([by_epoch[epoch] for epoch in known.tolist()])])
        return np.asarray(total[np.searchsorted(known, epochs, side="right")], np.int64)

    def read_ms(self) -> dict[int, int]:
        """When the rows of each epoch were read: the latest of its sources, on the wall clock."""
        found: dict[int, int] = {}
        for (_, _, epoch), record in self._cuts.items():
            if record["rows"]:
                found[epoch] = max(found.get(epoch, 0), record["now"])
        return found

    def ranges(self, epoch: int) -> list[tuple[str, int, int, int]]:
        """The rows of an epoch: (source, split, first, end)."""
        found = []
        for source in self.sources:
            for number in range(self.job.journal.next_number.get(source, 0)):
                record = self._cuts.get((source, number, epoch))
                for split, (start, end, *_) in record["splits"].items() if record is not None else ():
                    if end is not None and start != end:
                        found.append((source, int(split), 0 if start is None else start[0], end[0]))
        return found
