"""The versions of a Table's rows by event time, as far back as somebody may ask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.kept_rows import KeptRows, columns_of, loaded_rows, saved_columns
from operators.kernels.versions import enter, outdated, take_out, valid_at
from operators.room import grown
from operators.table import GONE
from seep.model.arrow import KEY
from seep.model.ids import BEGINNING, FOREVER
from seep.model.schema import physical

_VALUE = "value."


class Versions:
    """Rows by (key, time), some of which say that the key is gone from then on."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema, history_us: int) -> None:
        self.schema = physical(schema)
        self._names = list(keys)
        self._history_us = history_us
        kinds = [self.schema.field(name).type for name in keys]
        self._keys = KeyIndex(kinds, timed=False)
        """Which keys have a version; made anew from the versions when they are loaded."""
        self.index = KeyIndex(kinds, timed=True)
        self.kept = KeptRows(self.schema, self.index.capacity)
        self._newest = np.full(self._keys.capacity, -1, np.int64)
        self._older = np.zeros(self.index.capacity, np.int64)
        self._gone = np.zeros(self.index.capacity, np.bool_)
        self._due = FOREVER
        """Nothing is out of date before the limit comes here."""

    def add(self, rows: pa.RecordBatch, times: npt.NDArray[np.int64]) -> None:
        """Of two rows with the same key and time the later one counts."""
        found = self.index.find(columns_of(rows, self._names), rows.num_rows, times)
        last = np.empty(self.index.capacity, np.int64)
        last[found.slots] = np.arange(rows.num_rows)
        self._put(found.touched, found.fresh, rows.take(pa.array(last[found.touched])))

    def _put(self, slots: Slots, fresh: Slots, rows: pa.RecordBatch) -> None:
        self._grow()
        self.kept.put(slots, rows)
        self._gone[slots] = rows.column(GONE).to_numpy(zero_copy_only=False)
        fresh = fresh[np.argsort(self.index.times[fresh], kind="stable")]
        enter(fresh, self._keys_of(fresh), self.index.times, self._newest, self._older)
        if len(slots):
            self._due = min(self._due, int(self.index.times[slots].min()))

    def _keys_of(self, slots: Slots) -> Slots:
        keys = self._keys.find(self.index.keys(slots), len(slots)).slots
        if len(self._newest) < self._keys.capacity:
            newest = np.full(self._keys.capacity, -1, np.int64)
            newest[: len(self._newest)] = self._newest
            self._newest = newest
        return keys

    def at(self, keys: Sequence[pa.Array], moments: npt.NDArray[np.int64]) -> Slots:
        """The version that is valid at its moment for each of these keys; -1: there is none."""
        slots = valid_at(self._keys.look(keys, len(moments)), moments, self.index.times, self._newest, self._older)
        return np.where((slots >= 0) & self._gone[slots], -1, slots)

    def forget(self, watermark: int) -> None:
        """Drop what is older than the history behind the watermark, but for the newest that is still valid there."""
        limit = max(watermark - self._history_us, BEGINNING)
        if limit < self._due:
            return
        found = np.empty(len(self.index), np.int64)
        keys = self._keys.all()
        number, self._due = outdated(keys, limit, self.index.times, self._gone, self._newest, self._older, found)
        self.index.remove(found[:number])
        self.kept.drop(found[:number])
        self._keys.remove(keys[self._newest[keys] < 0])

    def _grow(self) -> None:
        if len(self._older) < self.index.capacity:
            self.kept.grow(self.index.capacity)
            self._older = grown(self._older, self.index.capacity)
            self._gone = grown(self._gone, self.index.capacity)

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            return saved_columns(_VALUE, self.kept.take(slots))

        return state_table(self.index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        gone = self.index.restore(deleted)
        self._grow()
        known = np.setdiff1d(gone.touched, gone.fresh)
        keys = self._keys_of(known)
        take_out(known, keys, self._newest, self._older)
        self._keys.remove(np.unique(keys[self._newest[keys] < 0]))
        self.kept.drop(self.index.forget(deleted))
        found = self.index.restore(entries.column(KEY))
        self._put(found.slots, found.fresh, loaded_rows(_VALUE, entries, self.schema))

    @property
    def keys(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        return self.index.size_bytes + self._keys.size_bytes + self.kept.size_bytes
