"""Rows kept by slot, as the columns they came in.

Rows lie in chunks, and a slot knows its row's place among all of them. A chunk is merged with its neighbour once it is
about as long, so there are few of them, and everything is rewritten when half of it is out of date: an epoch costs what
it changes, and reading costs what is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import Slots

_FEW_ROWS = 64
"""Below this no rewriting is worth the while."""
CHUNK_BYTES = 256 << 20
"""A chunk that would be longer is not made: Arrow's texts end at 2 GB."""


class KeptRows:
    """At most one row for each slot."""

    def __init__(self, schema: pa.Schema, capacity: int) -> None:
        self.schema = schema
        self._places = np.full(capacity, -1, np.int64)
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._held = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def size_bytes(self) -> int:
        return int(self._places.nbytes + sum(chunk.nbytes for chunk in self._chunks))

    def grow(self, capacity: int) -> None:
        if len(self._places) < capacity:
            places = np.full(capacity, -1, np.int64)
            places[: len(self._places)] = self._places
            self._places = places

    def has(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which of these slots have a row; -1 has none."""
        return np.asarray((slots >= 0) & (self._places[slots] >= 0))

    def take(self, slots: Slots) -> pa.RecordBatch:
        """The rows of these slots; all null where there is none."""
        places = np.where(slots >= 0, self._places[slots], -1)
        if len(places) == 0 or not self._chunks:
            return nulls(self.schema, len(places))
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(places, mask=places < 0))
        chunks = np.maximum(np.searchsorted(self._starts, places, "right") - 1, 0)
        order = np.argsort(chunks, kind="stable")
        bounds = np.searchsorted(chunks[order], np.arange(len(self._chunks) + 1))
        parts = []
        for number in np.flatnonzero(np.diff(bounds)):
            inside = places[order[bounds[number] : bounds[number + 1]]]
            at = pa.array(inside - self._starts[number], mask=inside < 0)
            parts.append(self._chunks[number].take(at))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back)) if len(parts) > 1 else parts[0]

    def put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Each slot's row, in place of the one it had; no slot comes twice."""
        if len(slots) == 0:
            return
        self._live += int(np.count_nonzero(self._places[slots] < 0))
        self._places[slots] = self._held + np.arange(len(slots))
        self._append(rows)
        if self._held > 2 * self._live + _FEW_ROWS:
            self._rewrite()

    def _append(self, rows: pa.RecordBatch) -> None:
        start = self._held
        self._held += rows.num_rows
        late: list[pa.RecordBatch] = [rows]
        size, size_bytes = rows.num_rows, rows.nbytes
        while self._chunks and self._chunks[-1].num_rows < 2 * size:
            size += self._chunks[-1].num_rows
            size_bytes += self._chunks[-1].nbytes
            if size_bytes > CHUNK_BYTES:
                break
            start = self._starts.pop()
            late.append(self._chunks.pop())
        self._chunks.append(pa.concat_batches(late[::-1]) if len(late) > 1 else rows)
        self._starts.append(start)

    def drop(self, slots: Slots) -> None:
        """These slots have no row any more; no slot comes twice."""
        self._live -= int(np.count_nonzero(self._places[slots] >= 0))
        self._places[slots] = -1

    def _rewrite(self) -> None:
        live = np.flatnonzero(self._places >= 0)
        parts = np.array_split(live, 1 + self.size_bytes // CHUNK_BYTES)
        self._chunks = [self.take(part) for part in parts if len(part)]
        self._starts = [0, *accumulate(chunk.num_rows for chunk in self._chunks)][:-1]
        self._places[live] = np.arange(len(live))
        self._held = len(live)


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """So many rows without any value."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows, kind) for kind in schema.types], schema=schema)


def saved_columns(prefix: str, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of these rows as a state table holds them."""
    return {prefix + name: column for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def loaded_rows(prefix: str, entries: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Undo `saved_columns`."""
    return pa.RecordBatch.from_arrays([entries.column(prefix + name) for name in schema.names], schema=schema)


def columns_of(record: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    return [record.column(name) for name in names]
