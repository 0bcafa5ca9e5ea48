"""A result as one number that does not depend on the order of its rows: the sum of a 64-bit hash of every row.

So a sink reads every value without keeping it, and engines in any language can be compared with one oracle. The hash
of a row: FNV-1a over the bytes of its strings, then for each whole number ``h = mix(h ^ number)`` with the finalizer of
splitmix64. The programs in `benchmarks.peers` do the same in their language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seep.model.hashing import compiled

_BASIS = 0xCBF29CE484222325


class Digest(NamedTuple):
    rows: int = 0
    total: int = 0

    def plus(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.total + other.total) % 2**64)


def digest(columns: Sequence[pa.Array]) -> Digest:
    """Of rows given by their columns: strings first, then numbers and times (in microseconds). No nulls.

    >>> digest([pa.array(["a", "b"]), pa.array([1, 2])]) == digest([pa.array(["b", "a"]), pa.array([2, 1])])
    True
    """
    rows = len(columns[0])
    if not rows:
        return Digest()
    hashes = np.full(rows, _BASIS, np.uint64)
    for column in columns:
        if column.null_count:
            raise ValueError("a digest is of rows without nulls")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            wide = column.cast(pa.large_string())
            _, offsets, data = wide.buffers()
            places = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + rows + 1]
            text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
            _add_strings(hashes, places, text)
        else:
            _add_numbers(hashes, column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    return Digest(rows, int(hashes.sum(dtype=np.uint64)))


@compiled
def _add_strings(hashes: Any, offsets: Any, text: Any) -> None:
    prime = np.uint64(0x100000001B3)
    for row in range(hashes.shape[0]):
        value = hashes[row]
        for place in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(text[place])) * prime
        hashes[row] = value


@compiled
def _add_numbers(hashes: Any, numbers: Any) -> None:
    for row in range(hashes.shape[0]):
        value = hashes[row] ^ np.uint64(numbers[row])
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes[row] = value ^ (value >> np.uint64(31))
