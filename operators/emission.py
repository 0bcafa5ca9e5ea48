"""How windows become the changes of a Table: at once, or at most once in each period of epoch time.

A change says what a reader had before and what is true now. Held back, the changes of a window add up: the first one
tells what the reader has, the last one what is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.changes import DELETED, INSERTED, NONE, UPDATED, change_column, differ
from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.room import grown
from seep.model.arrow import BUCKET, KEY, ArrowBatch
from seep.model.epoch import Moment
from seep.model.schema import TIMESTAMP

HELD = "held"
_MANY_CHUNKS = 64
_OLD, _NEW = "old.", "new."

Flags = npt.NDArray[np.bool_]


class Revision(NamedTuple):
    """What happened to some windows, one row for each, in the order in which they are emitted."""

    buckets: npt.NDArray[np.uint16]
    places: list[pa.Array]
    """Key columns, start and end: they identify a window."""
    before: list[pa.Array] | None
    """Its aggregates until now, of use where it is `shown`. None: whatever they were, they have changed."""
    after: list[pa.Array]
    shown: Flags
    """The reader has a row of it."""
    present: Flags
    """It exists now. (Sessions that merge are gone.)"""

    def rows(self, schema: pa.Schema) -> ArrowBatch | None:
        """The changes that a reader could see, the last column saying how; a delete carries the old values."""
        kinds = np.where(self.present, np.where(self.shown, UPDATED, INSERTED), np.where(self.shown, DELETED, NONE))
        before = self.after if self.before is None else self.before
        both = np.flatnonzero(self.shown & self.present)
        if self.before is not None and len(both):
            chosen = pa.array(both)
            old, new = ([array.take(chosen) for array in arrays] for arrays in (before, self.after))
            kinds[both[~differ(old, new, len(both))]] = NONE
        kept = np.flatnonzero(kinds != NONE)
        if len(kept) == 0:
            return None
        rows = pa.array(kept)
        source = pa.array(np.where(kinds[kept] == DELETED, kept + len(kinds), kept))
        values = [pa.concat_arrays([new, old]).take(source) for new, old in zip(self.after, before, strict=True)]
        arrays = [*(place.take(rows) for place in self.places), *values, change_column(kinds[kept])]
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), self.buckets[kept])


class _Store:
    """Rows by number, in the chunks they came in."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self.held = 0

    @property
    def size_bytes(self) -> int:
        return int(sum(chunk.nbytes for chunk in self._chunks))

    @property
    def scattered(self) -> bool:
        return len(self._chunks) > _MANY_CHUNKS

    def put(self, arrays: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
        self._chunks.append(pa.RecordBatch.from_arrays(list(arrays), schema=self._schema))
        self.held += rows
        return np.arange(self.held - rows, self.held)

    def get(self, numbers: npt.NDArray[np.int64]) -> list[pa.Array]:
        """Nulls where the number is -1."""
        table = pa.Table.from_batches(self._chunks, schema=self._schema)
        taken = table.take(pa.array(numbers, mask=numbers < 0)).combine_chunks()
        return [
            column.chunk(0) if column.num_chunks else pa.array([], field.type)
            for column, field in zip(taken.columns, self._schema, strict=True)
        ]


class Pacer:
    """Holds changes back. A window that changed in one period is told in the first epoch of a later one, with all that
    has happened to it until then, or when it closes.

    Periods are those of epoch time since 1970, so what is due follows from the held entries and the epoch alone."""

    def __init__(self, kinds: Sequence[pa.DataType], values: Sequence[pa.Field], period_us: int) -> None:
        self._period = period_us
        self._values = pa.schema(values)
        self._index = KeyIndex([*kinds, pa.int64()], timed=True)
        """By key and end; the time is the window's start. Buckets are those of the key alone."""
        self._store = _Store(self._values)
        self._old = np.zeros(0, np.int64)
        self._new = np.zeros(0, np.int64)
        self._since = np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)

    def hold(self, moment: Moment, revision: Revision) -> None:
        assert revision.before is not None, "what a reader has must be known until it is told"
        rows = len(revision.buckets)
        starts, ends = (np.array(place.view(pa.int64()).to_numpy()) for place in revision.places[-2:])
        found = self._index.find([*revision.places[:-2], pa.array(ends)], rows, starts)
        self._grow()
        slots = found.slots  # each window comes once, so they are all different
        new = np.isin(slots, found.fresh)
        self._index.buckets[slots] = revision.buckets
        self._ends[slots] = ends
        self._since[slots[new]] = self._tick(moment)
        old = self._store.put(revision.before, rows)
        self._old[slots[new]] = np.where(revision.shown, old, -1)[new]
        self._new[slots] = np.where(revision.present, self._store.put(revision.after, rows), -1)
        self._index.remove(slots[(self._old[slots] < 0) & (self._new[slots] < 0)])
        self._tidy()

    def release(self, moment: Moment, limit: int, schema: pa.Schema) -> ArrowBatch | None:
        """What is due: windows that changed in an earlier period, and those whose end the limit has reached."""
        if len(self._index) == 0:
            return None
        held = self._index.all()
        due = self._since[held] < self._tick(moment)
        present = self._new[held] >= 0
        closing = present & (self._ends[held] <= limit)
        if closing.any() and not present.all():
            closing = self._with_their_keys(held, closing)
        slots = self._index.ordered(held[due | closing])
        if len(slots) == 0:
            return None
        old, new = self._old[slots], self._new[slots]
        *keys, ends = self._index.keys(slots)
        places = [*keys, pa.array(self._index.times[slots]).view(TIMESTAMP), ends.view(TIMESTAMP)]
        before, after = self._store.get(old), self._store.get(new)
        revision = Revision(self._index.buckets[slots], places, before, after, old >= 0, new >= 0)
        self._index.remove(slots)
        self._tidy()
        return revision.rows(schema)

    def _with_their_keys(self, held: Slots, closing: Flags) -> Flags:
        """A session that closes takes along the sessions that went into it: a reader never has both, nor neither."""
        *keys, _ = self._index.keys(held)
        numbers = KeyIndex(self._index.kinds[:-1], timed=False).find(keys, len(held)).slots
        return np.isin(numbers, numbers[closing])

    def _tick(self, moment: Moment) -> int:
        return moment.now_ms * 1000 // self._period

    def _grow(self) -> None:
        if len(self._old) < self._index.capacity:
            for name in ("_old", "_new", "_since", "_ends"):
                setattr(self, name, grown(getattr(self, name), self._index.capacity))

    def _tidy(self) -> None:
        """Rewrite the rows when few of them are still of use."""
        live = len(self._index)
        if live == 0:
            self._store = _Store(self._values)
        elif self._store.scattered or self._store.held > 4 * live + _MANY_CHUNKS:
            slots, fresh = self._index.all(), _Store(self._values)
            for numbers in (self._old, self._new):
                moved = fresh.put(self._store.get(numbers[slots]), len(slots))
                numbers[slots] = np.where(numbers[slots] < 0, -1, moved)
            self._store = fresh

    @property
    def size_bytes(self) -> int:
        return int(self._index.size_bytes + self._store.size_bytes)

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            flags = {
                "shown": pa.array(self._old[slots] >= 0),
                "present": pa.array(self._new[slots] >= 0),
                "since": pa.array(self._since[slots]),
                "end": pa.array(self._ends[slots]),
            }
            for prefix, numbers in ((_OLD, self._old), (_NEW, self._new)):
                names = [prefix + name for name in self._values.names]
                flags |= dict(zip(names, self._store.get(numbers[slots]), strict=True))
            return flags

        return state_table(self._index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        if len(deleted):
            self._index.forget(deleted)
        slots = self._index.restore(entries.column(KEY)).slots
        self._grow()
        self._index.buckets[slots] = entries.column(BUCKET).to_numpy()
        self._since[slots] = entries.column("since").to_numpy()
        self._ends[slots] = entries.column("end").to_numpy()
        for prefix, flag, numbers in ((_OLD, "shown", self._old), (_NEW, "present", self._new)):
            rows = self._store.put([entries.column(prefix + name) for name in self._values.names], len(slots))
            numbers[slots] = np.where(entries.column(flag).to_numpy(zero_copy_only=False), rows, -1)
        self._tidy()
