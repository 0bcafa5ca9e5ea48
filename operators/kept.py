"""Values of any Arrow type by position, in chunks: for what an aggregate keeps but never computes with.

A value that is appended stays where it is until the owner, who alone knows which are still wanted, has the others
dropped. Chunks are joined when they are of like size, so there are few and each value is copied a few times at most.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.lists import Words

_SLACK = 1_024


class Kept:
    """An append-only array with holes."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._chunks: list[pa.Array] = []
        self._held = 0
        self._limit = _SLACK

    def __len__(self) -> int:
        """All positions are below this."""
        return self._held

    @property
    def size_bytes(self) -> int:
        return int(sum(chunk.nbytes for chunk in self._chunks))

    @property
    def crowded(self) -> bool:
        """Is it time to `keep` only what is wanted?"""
        return self._held > self._limit

    def append(self, values: pa.Array) -> Words:
        """The positions of these values."""
        positions = np.arange(self._held, self._held + len(values))
        if len(values):
            self._chunks.append(values)
            self._held += len(values)
        while len(self._chunks) > 1 and 2 * len(self._chunks[-1]) >= len(self._chunks[-2]):
            self._chunks[-2:] = [pa.concat_arrays(self._chunks[-2:])]
        return positions

    def take(self, positions: Words) -> pa.Array:
        if len(positions) == 0:
            return pa.array([], self.kind)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(positions))
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        owners = np.searchsorted(ends, positions, side="right")
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(ends) + 1))
        parts = []
        for number, chunk in enumerate(self._chunks):
            chosen = positions[order[bounds[number] : bounds[number + 1]]]
            if len(chosen):
                parts.append(chunk.take(pa.array(chosen - (ends[number] - len(chunk)))))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(places))

    def keep(self, positions: Words) -> Words:
        """Drop all but these values; their new positions."""
        chunk = self.take(positions)
        self._chunks, self._held, self._limit = [], 0, 2 * len(positions) + _SLACK
        return self.append(chunk)
