"""Rows kept by slot, as the columns they came in: at most one for each slot.

A slot knows its row's number in the chunks. Everything is rewritten when half of it is out of date: an epoch costs what
it changes, and reading costs what is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.chunks import Chunks
from operators.index import Slots
from seep.errors import Misuse

_FEW_ROWS = 64
"""Below this no rewriting is worth the while."""


class KeptRows:
    """At most one row for each slot."""

    def __init__(self, schema: pa.Schema, capacity: int) -> None:
        self.schema = schema
        self._places = np.full(capacity, -1, np.int64)
        self._chunks = Chunks(schema)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def size_bytes(self) -> int:
        return int(self._places.nbytes) + self._chunks.size_bytes

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
        return self._chunks.take(np.where(slots >= 0, self._places[slots], -1))

    def put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Each slot's row, in place of the one it had; no slot comes twice."""
        if len(slots) == 0:
            return
        self._live += int(np.count_nonzero(self._places[slots] < 0))
        self._places[slots] = self._chunks.append(rows) + np.arange(len(slots))
        if self._chunks.held > 2 * self._live + _FEW_ROWS:
            live = np.flatnonzero(self._places >= 0)
            self._places[live] = self._chunks.keep_only(self._places[live])

    def drop(self, slots: Slots) -> None:
        """These slots have no row any more; no slot comes twice."""
        self._live -= int(np.count_nonzero(self._places[slots] >= 0))
        self._places[slots] = -1


def saved_columns(prefix: str, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of these rows as a state table holds them."""
    return {prefix + name: column for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def loaded_rows(prefix: str, entries: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Undo `saved_columns`. Columns that are no longer read may be there."""
    for name in schema.names:
        if prefix + name not in entries.schema.names:
            raise Misuse(f"the state was saved without the column {name!r}, which nobody read then; do not read it now")
    return pa.RecordBatch.from_arrays([entries.column(prefix + name) for name in schema.names], schema=schema)


def columns_of(record: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    return [record.column(name) for name in names]
