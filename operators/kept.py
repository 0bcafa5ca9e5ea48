"""Values of any Arrow type by position: for what an aggregate keeps but never computes with.

A value that is appended stays where it is until the owner, who alone knows which are still wanted, has the others
dropped.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.chunks import Chunks
from operators.lists import Words

_SLACK = 1_024
_VALUE = "value"


class Kept:
    """An append-only array with holes."""

    def __init__(self, kind: pa.DataType) -> None:
        self._chunks = Chunks(pa.schema([(_VALUE, kind)]))
        self._limit = _SLACK

    def __len__(self) -> int:
        """All positions are below this."""
        return self._chunks.held

    @property
    def size_bytes(self) -> int:
        return self._chunks.size_bytes

    @property
    def crowded(self) -> bool:
        """Is it time to `keep` only what is wanted?"""
        return len(self) > self._limit

    def append(self, values: pa.Array) -> Words:
        """The positions of these values."""
        first = self._chunks.append(pa.RecordBatch.from_arrays([values], schema=self._chunks.schema))
        return np.arange(first, len(self))

    def take(self, positions: Words) -> pa.Array:
        return self._chunks.take(positions).column(0)

    def keep(self, positions: Words) -> Words:
        """Drop all but these values; their new positions."""
        self._limit = 2 * len(positions) + _SLACK
        return self._chunks.keep_only(positions)
