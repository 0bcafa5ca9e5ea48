"""Who is who: partitions, generations, key ranges, and the logical time of a flow.

A partition's number is never reused inside a flow; a partition that is started again keeps its id and gets a
higher generation, so one comparison tells a zombie from its successor.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

BUCKETS = 4096
"""Size of the key space. Fixed for ever: saved state is cut by it."""

GROUP_BUCKETS = 64
"""Load is counted by groups of so many neighbouring buckets."""

FOREVER = 2**62
"""An epoch, watermark or time later than any other (the end of a bounded input)."""

BEGINNING = -(2**62)
"""A watermark earlier than any other (no event time seen yet)."""

CONTROLLER = "controller"
"""The address of the controller, beside the worker ids."""


class Place(NamedTuple):
    """Where a worker runs: those with the same executor are lost together, those on the same host often."""

    host: str = ""
    executor: str = ""

    def apart(self, other: Place) -> int:
        """How far: 0 in one executor, 1 on one host, 2 on two.

        >>> [Place("h1", "x1").apart(other) for other in (Place("h1", "x1"), Place("h1", "x2"), Place("h2", "x1"))]
        [0, 1, 2]
        """
        return 2 if self.host != other.host else int(self.executor != other.executor)


NOWHERE = Place()
"""Of a worker that has not said where it runs."""


class PartitionId(NamedTuple):
    """One running piece of an operator, such as ``count/3``."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> PartitionId:
        operator, _, number = text.rpartition("/")
        return cls(operator, int(number))


class Generation(NamedTuple):
    """Which start of a partition: the controller's term, then a counter inside the term."""

    term: int
    number: int


class KeyRange(NamedTuple):
    """The half-open interval of buckets ``[low, high)`` that a partition owns."""

    low: int
    high: int

    def __contains__(self, bucket: object) -> bool:
        return isinstance(bucket, int) and self.low <= bucket < self.high

    @property
    def size(self) -> int:
        return self.high - self.low

    def overlaps(self, other: KeyRange) -> bool:
        return self.low < other.high and other.low < self.high

    def split(self, parts: int) -> tuple[KeyRange, ...]:
        """Cut into equal intervals.

        >>> KeyRange(0, 4096).split(2)
        (KeyRange(low=0, high=2048), KeyRange(low=2048, high=4096))
        """
        edges = [self.low + self.size * i // parts for i in range(parts + 1)]
        return tuple(KeyRange(a, b) for a, b in pairwise(edges))


EVERYTHING = KeyRange(0, BUCKETS)
