"""What the partition machine needs to know of a batch, and nothing more.

The machine never looks inside: it counts, cuts by key range and passes on. So the simulator runs the machine on
light lists (`seep.sim`), and workers run it on Arrow columns (`seep.model.arrow`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seep.model.ids import KeyRange

DIGESTS = 2**63
"""Sums of digests are kept modulo this, so that they fit where counters do."""


class Batch(Protocol):
    """Rows with, for each, the bucket it goes to. Immutable."""

    @property
    def rows(self) -> int: ...

    @property
    def weight(self) -> int:
        """Of how many rows of the flow these are made: a sender may have folded some together."""

    @property
    def size_bytes(self) -> int: ...

    def part(self, key_range: KeyRange) -> Batch:
        """The rows whose target bucket lies in the range, in their order."""

    def pieces(self, limit_rows: int) -> Sequence[Batch]:
        """The same rows in batches of at most so many."""

    def concat(self, batches: Sequence[Any]) -> Any:
        """These batches, one after the other (self only picks the kind of batch)."""

    def by_group(self) -> Mapping[int, int]:
        """About how many rows go to each group of GROUP_BUCKETS buckets; groups without any are absent."""

    def fullest(self) -> tuple[int, float]:
        """The bucket that most rows go to, and about which share of them. Asked only of a batch with rows."""

    def digest(self) -> int:
        """An order-free sum over the rows (modulo 2**64): parts of a batch add up to its digest."""


class State(Protocol):
    """Processing state as a value: entries by bucket; a later entry of a key replaces or deletes an earlier one."""

    @property
    def size_bytes(self) -> int: ...

    def part(self, key_range: KeyRange) -> State: ...
