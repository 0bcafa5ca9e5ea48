"""The key index that every keyed operator stands on: rows in, slots out; what changed since the last snapshot.

An entry is a key, or a key and a time (the start of its window). Its values live in arrays by slot that belong to
the operator; the index tells when they must grow and which slots are new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.identities import identity_rows
from operators.kernels import index as kernel
from operators.kernels import order
from operators.room import grown
from operators.search import NO_TIMES, Search, seek, seek_text
from operators.search import Found as Found
from operators.search import Slots as Slots
from seep.errors import SeepError
from seep.model.arrow import BUCKET, DELETED, KEY
from seep.model.keyform import Rows, column_of, decode, encode

_FIRST_SLOTS = 64
_PLACES, _FEWER_PLACES = 4, 2
"""Places in the table for each slot. Many are free, so most searches end at the first: the next one could not be
foreseen by the processor. From ``_MANY_SLOTS`` on memory counts for more."""
_MANY_SLOTS = 1 << 16
_MOVED_AT_ONCE = 4
"""While the table is exchanged for a larger one, so many entries move for each row that is looked up."""
_ROWS_AT_ONCE = 32_768
"""A batch is searched in stretches whose words stay in the processor's cache."""

_BY_SLOT = ("buckets", "live", "_entries", "_starts", "_lengths", "_stamps", "_dirty", "_saved", "_waiting")
_MOST_WORDS = 2**32 - 1
"""Of all keys of one index: where each begins is kept in half a word."""


class KeyIndex:
    """Entries by key (and time)."""

    def __init__(self, kinds: Sequence[pa.DataType], timed: bool) -> None:
        self.kinds = list(kinds)
        self.timed = timed
        self.capacity = _FIRST_SLOTS
        self.times = np.zeros(self.capacity if timed else 0, np.int64)
        self.buckets = np.zeros(self.capacity, np.uint16)
        self.live = np.zeros(self.capacity, np.bool_)
        self._entries = np.zeros(self.capacity, np.uint32)
        self._starts = np.zeros(self.capacity, np.uint32)
        self._lengths = np.zeros(self.capacity, np.int32)
        self._stamps = np.zeros(self.capacity, np.int32)
        self._dirty = np.zeros(self.capacity, np.bool_)
        self._saved = np.zeros(self.capacity, np.bool_)
        self._free = np.zeros(_FIRST_SLOTS, np.int32)
        """Slots of entries that are gone; longer when that many have gone."""
        self._table = _table_for(self.capacity)
        self._left: npt.NDArray[np.uint64] | None = None
        """The smaller table before, while entries move out of it; who still waits, and up to which slot nobody does."""
        self._waiting = np.zeros(self.capacity, np.bool_)
        self._moved = 0
        self._arena = np.zeros(4 * self.capacity, np.uint64)
        self._counters = np.zeros(6, np.int64)
        self._counters[kernel.HIGH_SLOT] = 1  # a place in the table that holds 0 is free
        self._stamp = 0
        self._scratch = (np.empty(0, np.int64), np.empty(0, np.int64))
        """Lists of slots while a search goes on; kept, since fresh memory costs more than writing them."""
        self._gone: list[tuple[npt.NDArray[np.uint16], pa.Array]] = []

    def __len__(self) -> int:
        return int(self._counters[kernel.LIVE])

    @property
    def searches(self) -> int:
        """How often it has been searched."""
        return self._stamp

    def last_met(self, slots: Slots) -> npt.NDArray[np.int64]:
        """For each of these the number of the last search that found or made it."""
        return self._stamps[slots].astype(np.int64)

    @property
    def numbers(self) -> int:
        """All slots ever given out are below this, and above 0."""
        return int(self._counters[kernel.HIGH_SLOT])

    @property
    def size_bytes(self) -> int:
        arrays = (self.times, self._entries, self._starts, self._lengths, self._table, self._arena)
        return sum(array.nbytes for array in arrays)

    def find(
        self, columns: Sequence[pa.Array], rows: int, times: npt.NDArray[np.int64] | None = None, changed: bool = True
    ) -> Found:
        """The slot of each row, made if need be; every slot touched counts as changed. ``changed=False``: only those
        that `mark` names afterwards, which must name the fresh ones."""
        search = Search(self, rows)
        for low in range(0, rows, _ROWS_AT_ONCE):
            high = min(rows, low + _ROWS_AT_ONCE)
            part = [column.slice(low, high - low) for column in columns]
            then = None if times is None else times[low:high]
            if len(part) == 1 and (shape := column_of(part[0])).width < 0:
                search.add_text(low, shape, then)
            else:
                search.add(low, encode(part, high - low), then)
        return search.found(changed)

    def mark(self, slots: Slots) -> None:
        """These entries have changed."""
        self._dirty[slots] = True

    def look(self, columns: Sequence[pa.Array], rows: int) -> Slots:
        """The slot of each row, -1 where its key has none; nothing is made, and nothing counts as changed."""
        slots = np.empty(rows, np.int64)
        if len(columns) == 1 and (shape := column_of(columns[0])).width < 0:
            self._missing(slots, partial(seek_text, self, shape, NO_TIMES))
            slots[slots < 0] = -1
        else:
            self._missing(slots, partial(seek, self, encode(columns, rows), NO_TIMES))
        return slots

    def _missing(self, slots: Slots, look_up: Callable[[Any, Slots], int]) -> int:
        """Find the slots of known keys; answers how many rows have none."""
        missing = look_up(self._table, slots)
        if missing and self._left is not None:
            # What has not moved yet is found where it was. (What was removed since it moved is found there, too.)
            before = np.empty_like(slots)
            look_up(self._left, before)
            known = (slots < 0) & (before > 0)
            known[known] = self._waiting[before[known]]
            slots[known] = before[known]
            missing -= int(known.sum())
        self._move_on(_MOVED_AT_ONCE * len(slots))
        return missing

    def _make_room(self, words: int) -> None:
        counters = self._counters
        self._make_words(words)
        if counters[kernel.FREE] == 0 and counters[kernel.HIGH_SLOT] == self.capacity:
            self._widen(2 * self.capacity)

    def _make_words(self, words: int) -> None:
        counters = self._counters
        used, garbage = int(counters[kernel.ARENA]), int(counters[kernel.GARBAGE])
        if used + words <= len(self._arena):
            return
        if used - garbage + words > _MOST_WORDS:
            raise SeepError("the keys of one partition take more than 32 GB; scale the operator out")
        if 4 * garbage < used and used + words <= _MOST_WORDS:
            self._arena = grown(self._arena, min(2 * (used + words), _MOST_WORDS))
        else:
            live = np.flatnonzero(self.live)
            needed = used - garbage + words
            arena = np.zeros(min(max(2 * needed, 4 * _FIRST_SLOTS), _MOST_WORDS), np.uint64)
            counters[kernel.ARENA] = kernel.move_words(live, self._starts, self._lengths, self._arena, arena)
            counters[kernel.GARBAGE] = 0
            self._arena = arena
            self._lengths[self._free[: counters[kernel.FREE]]] = 0  # the words of those who are gone are gone, too

    def _widen(self, capacity: int) -> None:
        """Twice the room, without a pause: arrays grow in place once they are large, and the entries move to the new
        table little by little, with the searches to come."""
        self._move_on(self.numbers)
        self.capacity = capacity
        for name in (*_BY_SLOT, *(("times",) if self.timed else ())):
            setattr(self, name, grown(getattr(self, name), self.capacity))
        self._left, self._moved = self._table, 0
        self._waiting[: self.numbers] = self.live[: self.numbers]
        self._table = _table_for(self.capacity)

    def _move_on(self, slots: int) -> None:
        """So many slots further."""
        if self._left is not None:
            first, self._moved = self._moved, min(self.numbers, self._moved + slots)
            self._move(np.arange(first, self._moved))
            if self._moved == self.numbers:
                self._left = None

    def _move(self, slots: Slots) -> None:
        kernel.move_entries(slots, self._table, self._entries, self._waiting)

    def remove(self, slots: Slots) -> None:
        """Forget these entries; the next increment says that they are gone, if a snapshot ever held them."""
        saved = slots[self._saved[slots]]
        if len(saved):
            self._gone.append((self.buckets[saved], self.identities(saved)))
        freed = int(self._counters[kernel.FREE]) + len(slots)
        if freed > len(self._free):
            self._free = grown(self._free, 2 * freed)
        kernel.remove(slots, self._table, self._entries, self._waiting, self._lengths, self._free, self._counters)
        self.live[slots] = False
        self._dirty[slots] = False

    def all(self) -> Slots:
        return np.flatnonzero(self.live[: self.numbers])

    def ordered(self, slots: Slots) -> Slots:
        """By (bucket, time, key bytes): the order in which state is emitted."""
        if len(slots) < 2:
            return slots
        result: Slots = order.by_place(slots, self.buckets, self.times, self._starts, self._lengths, self._arena)
        return result

    def keys(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these entries."""
        return decode(self._arena, self._starts[slots], self.kinds)

    def identities(self, slots: Slots) -> pa.Array:
        """What identifies each entry in a snapshot: the bytes of its key's words, then of its time."""
        offsets = np.zeros(len(slots) + 1, np.int32)
        words = kernel.gather_words(slots, self._starts, self._lengths, self._arena, self.times, self.timed, offsets)
        return pa.Array.from_buffers(pa.binary(), len(slots), [None, pa.py_buffer(offsets), pa.py_buffer(words)])

    # --- snapshots -----------------------------------------------------------------------------------------------

    def pending(self, full: bool) -> tuple[Slots, npt.NDArray[np.uint16], pa.Array]:
        """What a snapshot must hold now: the entries to write, and the buckets and identities of those gone."""
        gone = [] if full else self._gone  # a scan of one byte an entry is far below the cost of writing the changed
        written = self.all() if full else np.flatnonzero(self._dirty[: self.numbers])
        self._dirty[written] = False
        self._saved[written] = True
        self._gone = []
        buckets = np.concatenate([np.empty(0, np.uint16), *(part for part, _ in gone)])
        return written, buckets, pa.concat_arrays([pa.array([], pa.binary()), *(keys for _, keys in gone)])

    def mostly_changed(self) -> bool:
        """Are half of the entries, or more, to be in the next increment?"""
        return 2 * int(np.count_nonzero(self._dirty[: self.numbers])) >= len(self)

    def restore(self, keys: pa.Array) -> Found:
        """The slots of saved entries, made if need be; they count as saved, not as changed."""
        form, times = identity_rows(keys, self.timed)
        if len(keys) > self.capacity:
            self._widen(1 << len(keys).bit_length())
        self._make_words(len(form.words))
        search = Search(self, len(keys))
        # In stretches, here also because Python's lock is held inside one: others have their turn in between.
        for low in range(0, len(keys), _ROWS_AT_ONCE):
            stretch = Rows(form.offsets[low : low + _ROWS_AT_ONCE + 1], form.words)
            search.add(low, stretch, None if times is None else times[low : low + _ROWS_AT_ONCE])
        found = search.found(changed=False)
        self._dirty[found.touched] = False
        self._saved[found.touched] = True
        return found

    def forget(self, keys: pa.Array) -> Slots:
        """Drop saved entries that a later increment deletes; the slots that they had."""
        found = self.restore(keys)
        self._saved[found.touched] = False
        self.remove(found.touched)
        return found.touched


def _table_for(capacity: int) -> npt.NDArray[np.uint64]:
    return np.zeros(capacity * (_PLACES if capacity < _MANY_SLOTS else _FEWER_PLACES), np.uint64)


def state_table(index: KeyIndex, full: bool, values: Any) -> pa.RecordBatch:
    """A snapshot's table: identity columns, then ``values(slots)`` (name -> array); an increment's deletions first,
    so that an entry that was deleted and came back ends up present."""
    written, gone_buckets, gone_keys = index.pending(full)
    columns: dict[str, pa.Array] = {
        BUCKET: pa.array(index.buckets[written], pa.uint16()),
        KEY: index.identities(written),
        **values(written),
    }
    record = pa.RecordBatch.from_pydict(columns)
    if full:
        return record
    record = record.append_column(DELETED, pa.array(np.zeros(len(written), np.bool_)))
    if len(gone_keys) == 0:
        return record
    gone = {
        BUCKET: pa.array(gone_buckets, pa.uint16()),
        KEY: gone_keys,
        DELETED: pa.array(np.ones(len(gone_keys), np.bool_)),
    }
    arrays = [gone.get(f.name, pa.nulls(len(gone_keys), f.type)) for f in record.schema]
    deletions = pa.RecordBatch.from_arrays(arrays, schema=record.schema)
    return pa.concat_batches([deletions, record])


def split_deleted(table: pa.RecordBatch) -> tuple[pa.Array, pa.RecordBatch]:
    """The identities a saved table deletes, and the entries that it holds."""
    if DELETED not in table.schema.names:
        return pa.array([], pa.binary()), table
    deleted = table.column(DELETED)
    kept = pa.array(~deleted.to_numpy(zero_copy_only=False))
    return table.column(KEY).filter(deleted), table.filter(kept)
