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
HOT = 8
"""Buckets remembered as those with the most rows."""


class Load:
    def __init__(self) -> None:
        self._rows = [0.0] * GROUPS
        self._epochs = 0.0
        self._since_halved = 0
        self._told: tuple[int, ...] = ()
        self._since_told = 0
        self._hot: dict[int, float] = {}
        self._looked = 0.0
        """Rows of the epochs in which the fullest bucket was looked for."""
        self._since_looked = FRESH_EPOCHS

    def add(self, passed: int, batches: Iterable[Batch]) -> None:
        """One epoch was taken, so many later than the one before; epochs between them had no rows."""
        self._epochs += passed
        self._since_halved += passed
        self._since_told += passed
        self._since_looked += passed
        looks = self._since_looked >= FRESH_EPOCHS
        for batch in batches:
            for group, rows in batch.by_group().items():
                self._rows[group] += rows
            if looks and batch.rows:
                self._look(batch)
        if self._since_halved >= HALVING_EPOCHS:
            share = 0.5 ** (self._since_halved // HALVING_EPOCHS)
            self._rows = [rows * share for rows in self._rows]
            self._epochs *= share
            self._looked *= share
            self._hot = {bucket: rows * share for bucket, rows in self._hot.items()}
            self._since_halved = 0

    def _look(self, batch: Batch) -> None:
        self._since_looked = 0
        bucket, share = batch.fullest()
        self._looked += batch.rows
        self._hot[bucket] = self._hot.get(bucket, 0.0) + share * batch.rows
        if len(self._hot) > HOT:
            del self._hot[min(self._hot, key=self._hot.__getitem__)]

    @property
    def hot_share(self) -> float:
        """Of the rows, about how many go to one bucket, at most: no split can spread them."""
        return max(self._hot.values(), default=0.0) / self._looked if self._looked else 0.0

    def by_group(self) -> tuple[int, ...]:
        """Rows in 1,000 epochs for each group; empty until it is known."""
        if self._since_told >= FRESH_EPOCHS and self._epochs >= FIRST_EPOCHS:
            self._since_told = 0
            self._told = tuple(int(1000 * rows / self._epochs) for rows in self._rows)
        return self._told
