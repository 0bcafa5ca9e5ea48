"""Rows kept by slot of a key index: for each entry a run of rows, often one.

Rows stay in the columns they came in, as chunks; an entry knows where its run begins and how long it is. What is
written anew is appended, and everything is rewritten when half of what is held is out of date, so an epoch costs what
it changes. Since old rows stay until then, `note` and `undo` cost a few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.chunks import Chunks
from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.room import grown
from seep.model.arrow import KEY

Counts = npt.NDArray[np.int64]

_FEW_ROWS = 64
_VALUE = "value."
"""What the columns of the rows are called in a state table begins with this."""


class Note(NamedTuple):
    """Where the rows of some entries were."""

    slots: Slots
    starts: Counts
    counts: Counts


class RowStore:
    """The rows of each entry of an index. ``many``: any number for each, else one."""

    def __init__(self, index: KeyIndex, schema: pa.Schema, many: bool = False) -> None:
        self._index = index
        self._many = many
        self.schema = schema
        self._starts = np.zeros(index.capacity, np.int64)
        self.counts = np.zeros(index.capacity, np.int64)
        """How many rows each entry has."""
        self._chunks = Chunks(schema)
        self._current = 0
        """How many of the rows held are not out of date."""

    @property
    def size_bytes(self) -> int:
        return self._starts.nbytes + self.counts.nbytes + self._chunks.size_bytes

    def prepare(self, fresh: Slots) -> None:
        """The index has been searched: make room for its new entries, which have no rows yet."""
        if len(self.counts) < self._index.capacity:
            self._starts = grown(self._starts, self._index.capacity)
            self.counts = grown(self.counts, self._index.capacity)
        self.drop(fresh)

    def read(self, slots: Slots) -> pa.RecordBatch:
        """The rows of these entries, one run after the other."""
        return self._chunks.take(spread(self._starts[slots], self.counts[slots]))

    def read_last(self, slots: Slots, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The last row of each of these entries, which have some; all columns or these."""
        return self._chunks.take(self._starts[slots] + self.counts[slots] - 1, columns)

    def write(self, slots: Slots, rows: pa.RecordBatch, counts: Counts | None = None) -> None:
        """Replace the rows of these entries (each named once), each by so many of ``rows``; without counts, by one."""
        given = np.ones(len(slots), np.int64) if counts is None else counts
        self._place(slots, self._chunks.append(rows) + np.cumsum(given) - given, given)

    def drop(self, slots: Slots) -> None:
        """These entries have no rows any more."""
        self._place(slots, self._starts[slots], np.zeros(len(slots), np.int64))

    def note(self, slots: Slots) -> Note:
        return Note(slots, self._starts[slots], self.counts[slots])

    def undo(self, note: Note) -> None:
        """Back to what was noted; not after `tidy`."""
        self._place(*note)

    def _place(self, slots: Slots, starts: Counts, counts: Counts) -> None:
        self._current += int(counts.sum()) - int(self.counts[slots].sum())
        self._starts[slots] = starts
        self.counts[slots] = counts

    def tidy(self) -> None:
        """The epoch is over: let go of the rows out of date, if they are many."""
        if self._chunks.held > 2 * self._current + _FEW_ROWS:
            live = self._index.all()
            live = live[self.counts[live] > 0]
            places = self._chunks.keep_only(spread(self._starts[live], self.counts[live]))
            self._starts[live] = places[np.cumsum(self.counts[live]) - self.counts[live]]

    # --- snapshots -----------------------------------------------------------------------------------------------

    def snapshot(self, full: bool) -> pa.RecordBatch:
        """A state table: the rows of each entry; of many, as lists."""

        def values(slots: Slots) -> dict[str, pa.Array]:
            rows = self.read(slots)
            found = {_VALUE + name: column for name, column in zip(rows.schema.names, rows.columns, strict=True)}
            if not self._many:
                return found
            offsets = pa.array(np.append(0, np.cumsum(self.counts[slots])), pa.int32())
            return {name: pa.ListArray.from_arrays(offsets, column) for name, column in found.items()}

        return state_table(self._index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        """Apply a saved table."""
        deleted, entries = split_deleted(table)
        if len(deleted):
            gone = self._index.restore(deleted)
            self.prepare(gone.fresh)
            self.drop(gone.touched)
            self._index.forget(deleted)
        found = self._index.restore(entries.column(KEY))
        self.prepare(found.fresh)
        arrays = [entries.column(_VALUE + name) for name in self.schema.names]
        counts = None
        if self._many:
            counts = np.asarray(arrays[0].value_lengths().to_numpy(zero_copy_only=False), np.int64)
            arrays = [array.flatten() for array in arrays]
        self.write(found.slots, pa.RecordBatch.from_arrays(arrays, schema=self.schema), counts)
        self.tidy()


def spread(starts: Counts, counts: Counts) -> Counts:
    """The positions of runs: ``starts[0]`` and as many after it as ``counts[0]`` says, then those of the next.

    >>> spread(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
