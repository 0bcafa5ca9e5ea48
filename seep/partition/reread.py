"""Rows of an epoch that a source's log knows of, read again when somebody asks for them.

A source that starts again owes its receivers only what they have not taken, which is mostly nothing: reading all that
the log holds would keep them waiting for rows that nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seep.model.batch import DIGESTS, Batch
from seep.model.ids import KeyRange

Shape = tuple[int, int, int]
"""What the log says of the rows on one edge: their digest, how many they are, their bytes."""


def shapes_of(outputs: Mapping[str, Batch]) -> dict[str, Shape]:
    return {edge: (batch.digest(), batch.rows, batch.size_bytes) for edge, batch in outputs.items() if batch.rows}


def same_rows(one: Mapping[str, Sequence[int]], other: Mapping[str, Sequence[int]]) -> bool:
    """The same number of rows with the same digests on the same edges; how they lie in memory does not matter."""
    return {edge: tuple(shape[:2]) for edge, shape in one.items()} == {e: tuple(s[:2]) for e, s in other.items()}


class Reread:
    """One edge's rows: a `Batch`."""

    def __init__(self, shape: Sequence[int], read: Callable[[], Batch]) -> None:
        self._digest, self.rows, self.size_bytes = shape
        self._read = read
        """Reads once, however often it is called."""

    @property
    def weight(self) -> int:
        return self._read().weight

    def part(self, key_range: KeyRange) -> Batch:
        return self._read().part(key_range)

    def pieces(self, limit_rows: int) -> Sequence[Batch]:
        return self._read().pieces(limit_rows)

    def concat(self, batches: Sequence[Any]) -> Any:
        return self._read().concat(batches)

    def by_group(self) -> Mapping[int, int]:
        return self._read().by_group()

    def fullest(self) -> tuple[int, float]:
        return self._read().fullest()

    def digest(self) -> int:
        return self._digest


def merged(outputs: list[dict[str, Batch]]) -> dict[str, Batch]:
    """One batch for each edge, split after split: a split is an origin bucket, so this is canonical order."""
    found: dict[str, list[Batch]] = {}
    for output in outputs:
        for name, batch in output.items():
            found.setdefault(name, []).append(batch)
    return {name: batches[0].concat(batches) if len(batches) > 1 else batches[0] for name, batches in found.items()}


def of_edge(outputs: Callable[[], dict[str, Batch]], edge: str) -> Batch:
    return outputs()[edge]


def counted(counters: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: (counters.get(name, 0) + more.get(name, 0)) % DIGESTS for name in {**counters, **more}}
