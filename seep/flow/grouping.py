"""Groupings: how the rows on an edge find their target.

A target is a *bucket*, and a function of the row, its epoch, its origin bucket and its position there: however sender
and receiver are partitioned, a row goes to the same bucket. Counting what was sent, or looking at the load of others,
would make results depend on how the flow is partitioned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from operators.direct import TARGET
from operators.kernels.scatter import spread, two_choices
from seep.model.arrow import ArrowBatch, Buckets
from seep.model.hashing import Words, hash_rows
from seep.model.keyform import encode
from seep.model.keyspace import buckets_of

GROUPING = "grouping"
"""The setting of a vertex that is there for its grouping alone."""


class Grouping(Protocol):
    """How rows are sent."""

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        """The bucket each row goes to. The batch holds all rows of its origin buckets in this epoch, in order."""

    def describe(self) -> str:
        """In words, behind "sent"."""


@dataclass(frozen=True)
class Local:
    """Where the rows are."""

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        return batch.buckets

    def describe(self) -> str:
        return "by origin: a row stays in its bucket"


@dataclass(frozen=True)
class ByKey:
    """By key columns; none: all rows are one group."""

    keys: tuple[str, ...]

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        return buckets_of(batch.record, self.keys)

    def describe(self) -> str:
        return f"by key ({', '.join(self.keys)})" if self.keys else "to one place: the key has no columns"


@dataclass(frozen=True)
class Shuffle:
    """Evenly."""

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        found: Buckets = spread(batch.buckets.astype(np.int64), epoch)
        return found

    def describe(self) -> str:
        return "evenly, by origin and position"


@dataclass(frozen=True)
class ToOne:
    """All to one place."""

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        return buckets_of(batch.record, ())

    def describe(self) -> str:
        return "to one place"


@dataclass(frozen=True)
class Directed:
    """By what a user's function has said (`operators.direct`)."""

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        found: Buckets = batch.record.column(TARGET).to_numpy()
        return found

    def describe(self) -> str:
        return "by the value of route's function"


@dataclass(frozen=True)
class TwoChoices:
    """Each key to two places, whichever has less to do."""

    keys: tuple[str, ...]

    def targets(self, batch: ArrowBatch, epoch: int) -> Buckets:
        hashes = self.hashes(batch)
        origins = batch.buckets.astype(np.int64)
        if bool((origins[1:] >= origins[:-1]).all()):
            ascending: Buckets = two_choices(origins, hashes, epoch)
            return ascending
        order = np.argsort(origins, kind="stable")
        found = np.empty(batch.rows, np.uint16)
        found[order] = two_choices(origins[order], hashes[order], epoch)
        return found

    def hashes(self, batch: ArrowBatch) -> Words:
        return hash_rows(*encode([batch.record.column(name) for name in self.keys], batch.rows))

    def describe(self) -> str:
        return f"by key ({', '.join(self.keys)}), each key to the less loaded of two places"


def by(keys: tuple[str, ...] | None) -> Grouping:
    """What verbs ask for without naming a grouping."""
    return Local() if keys is None else ByKey(keys)
