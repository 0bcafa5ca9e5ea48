"""Where in the key space a partition's rows fall: what split points are chosen by.

Counted by groups of buckets, as rows in an epoch: epochs are the one clock that all partitions share, so the loads of
two partitions compare even if one has just been started or replays. Older epochs count less and less, so that the
numbers follow the input.
"""

from __future__ import annotations

from collections.abc import Iterable

from seep.model.batch import Batch
from seep.model.ids import BUCKETS, GROUP_BUCKETS

GROUPS = BUCKETS // GROUP_BUCKETS
HALVING_EPOCHS = 128
"""What was counted weighs half as much after so many epochs."""
FIRST_EPOCHS = 8
"""A load of fewer epochs says nothing yet."""
FRESH_EPOCHS = 8
"""What is told is at most so many epochs old."""


class Load:
    def __init__(self) -> None:
        self._rows = [0.0] * GROUPS
        self._epochs = 0.0
        self._since_halved = 0
        self._told: tuple[int, ...] = ()
        self._since_told = 0

    def add(self, passed: int, batches: Iterable[Batch]) -> None:
        """One epoch was taken, so many later than the one before; epochs between them had no rows."""
        self._epochs += passed
        self._since_halved += passed
        self._since_told += passed
        for batch in batches:
            for group, rows in batch.by_group().items():
                self._rows[group] += rows
        if self._since_halved >= HALVING_EPOCHS:
            share = 0.5 ** (self._since_halved // HALVING_EPOCHS)
            self._rows = [rows * share for rows in self._rows]
            self._epochs *= share
            self._since_halved = 0

    def by_group(self) -> tuple[int, ...]:
        """Rows in 1,000 epochs for each group; empty until it is known."""
        if self._since_told >= FRESH_EPOCHS and self._epochs >= FIRST_EPOCHS:
            self._since_told = 0
            self._told = tuple(int(1000 * rows / self._epochs) for rows in self._rows)
        return self._told
