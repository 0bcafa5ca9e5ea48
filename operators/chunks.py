"""Rows kept as the columns they came in, numbered in the order of arrival.

Chunks of about one size are put together eight at a time, so that a row is copied a few times only, and there are few
chunks to look into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TOGETHER = 8
_LARGE_BYTES = 2**30
"""Chunks are not joined beyond this: Arrow's strings end at twice as much."""

Numbers = npt.NDArray[np.int64]


class Chunks:
    """Rows by number; all of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.held = 0
        """The number of the next row."""
        self._chunks: list[pa.RecordBatch] = []
        self._levels: list[int] = []
        self._sizes: list[int] = []
        """Bytes: Arrow would count them anew each time."""

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes)

    def append(self, rows: pa.RecordBatch) -> int:
        """Take rows in; the number of the first."""
        first = self.held
        if rows.num_rows:
            self._add(rows, 0)
        return first

    def _add(self, rows: pa.RecordBatch, level: int) -> None:
        self._chunks.append(rows)
        self._levels.append(level)
        self._sizes.append(int(rows.nbytes))
        self.held += rows.num_rows
        while len(self._levels) >= _TOGETHER and self._levels[-_TOGETHER] == self._levels[-1]:
            last = self._chunks[-_TOGETHER:]
            size = sum(self._sizes[-_TOGETHER:])
            if size > _LARGE_BYTES:
                break
            self._chunks[-_TOGETHER:] = [pa.concat_batches(last)]
            self._sizes[-_TOGETHER:] = [size]
            self._levels[-_TOGETHER:] = [self._levels[-1] + 1]

    def take(self, numbers: Numbers, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """These rows, in this order; of all columns or some. -1: a row without any value."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if len(numbers) == 0 or not self._chunks:
            return nulls(schema, len(numbers))
        # Chunk by chunk: Arrow would put all chunks of texts together first.
        ends = np.cumsum([chunk.num_rows for chunk in self._chunks])
        which = np.searchsorted(ends, numbers, side="right").astype(np.uint16)
        order = np.argsort(which, kind="stable")
        counts = np.bincount(which, minlength=len(ends))
        parts, at = [], 0
        for chunk, count, end in zip(self._chunks, counts.tolist(), ends.tolist(), strict=True):
            if count:
                local = numbers if count == len(numbers) else numbers[order[at : at + count]]
                chosen = chunk if columns is None else chunk.select(list(columns))
                parts.append(chosen.take(pa.array(local - (end - chunk.num_rows), mask=local < 0)))
                at += count
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back))

    def keep_only(self, numbers: Numbers) -> Numbers:
        """Drop all rows but these; their new numbers."""
        kept = np.zeros(self.held, np.bool_)
        kept[numbers] = True
        self.keep(kept)
        return (np.cumsum(kept) - 1)[numbers]

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all rows but these; those kept are numbered anew, in the same order."""
        chunks, levels = self._chunks, self._levels
        self._chunks, self._levels, self._sizes, self.held = [], [], [], 0
        at = 0
        for chunk, level in zip(chunks, levels, strict=True):
            flags = kept[at : at + chunk.num_rows]
            at += chunk.num_rows
            if flags.any():
                self._add(chunk.filter(pa.array(flags)), level)


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """So many rows without any value."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows, kind) for kind in schema.types], schema=schema)
