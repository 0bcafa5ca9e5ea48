"""Searches of the key index: where rows look for their keys, and how those that are missing get in.

Apart from `operators.index`, whose memory they share, because it is the same work for every kind of key and table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.kernels import index as kernel
from operators.kernels import lookup
from seep.model.keyform import Column, Rows, column_of

if TYPE_CHECKING:
    from operators.index import KeyIndex

Slots = npt.NDArray[np.int64]

NO_TIMES = np.empty(0, np.int64)
_LAST_STAMP = 2**31 - 1
_FAR_KEYS = 32_768
"""So many keys, with their table, no longer lie in the nearer caches."""


class Found(NamedTuple):
    slots: Slots
    """One for each row; -1 for a row without an entry (late, broken)."""
    touched: Slots
    """Each slot once, in order of first appearance."""
    fresh: Slots
    """Those of them that are new: the values at these slots must be cleared."""


def seek(index: KeyIndex, form: Rows, times: Any, table: Any, slots: Slots) -> int:
    where = (index._arena, index._starts, index._lengths, index.times)
    return int(lookup.look_up(form.offsets, form.words, times, table, *where, slots))


def seek_text(index: KeyIndex, shape: Column, times: Any, table: Any, slots: Slots) -> int:
    """The same where the key is one column of varying length."""
    if index.numbers < _FAR_KEYS:
        where = (index._arena, index._starts, index.times)
        return int(lookup.look_up_text(*_text(shape, times), table, *where, slots))
    return seek_text_far(index, shape, times, table, slots)


def seek_text_far(index: KeyIndex, shape: Column, times: Any, table: Any, slots: Slots) -> int:
    far = (index._arena, index._starts, index.times)
    return int(lookup.look_up_text_far(*_text(shape, times), table, *far, slots))


def _text(shape: Column, times: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    return shape.starts, shape.values, np.uint64(shape.tag << 56), shape.validity, shape.bit, times


def warm_search(index: KeyIndex) -> None:
    """Load the loops that an index needs only once it is large."""
    shape, slots = column_of(pa.array(["a", "b"])), np.empty(2, np.int64)
    seek_text_far(index, shape, NO_TIMES, index._table, slots)


class Search:
    """One search of the index by many rows: look up, enter what was missing, note what was met."""

    def __init__(self, index: KeyIndex, rows: int) -> None:
        self._index = index
        self._slots = np.empty(rows, np.int64)
        if len(index._scratch[0]) < rows:
            index._scratch = (np.empty(rows, np.int64), np.empty(rows, np.int64))
        self._touched, self._fresh = index._scratch
        self._met = 0
        index._counters[kernel.FRESH] = 0
        if index._stamp == _LAST_STAMP:
            index._stamps[:] = 0
            index._stamp = 0
        index._stamp += 1

    def add(self, low: int, form: Rows, times: npt.NDArray[np.int64] | None) -> None:
        index, given = self._index, NO_TIMES if times is None else times
        slots = self._slots[low : low + len(form.offsets) - 1]
        if index._missing(slots, partial(seek, index, form, given)):
            self._insert(
                slots,
                kernel.missing_rows(slots, given),
                lambda at, rows: kernel.insert(at, rows, form.offsets, form.words, given, *self._memory(slots)),
                lambda row: int(form.offsets[row + 1] - form.offsets[row]),
            )
        self._touch(slots)

    def add_text(self, low: int, shape: Column, times: npt.NDArray[np.int64] | None) -> None:
        """The key is this one column of varying length."""
        index, given = self._index, NO_TIMES if times is None else times
        slots = self._slots[low : low + len(shape.array)]
        if index._missing(slots, partial(seek_text, index, shape, given)):
            self._insert(
                slots,
                kernel.missing_rows(slots, given),
                lambda at, rows: kernel.insert_text(at, rows, *_text(shape, given), *self._memory(slots)),
                lambda row: 1 + (len(shape.array[row].as_buffer() or b"") + 7) // 8,
            )
        self._touch(slots)

    def _insert(
        self, slots: Slots, rows: Slots, insert: Callable[[int, Slots], int], words: Callable[[int], int]
    ) -> None:
        """Enter the missing keys of these rows, making room whenever there is none for the ``words`` of one."""
        index, at = self._index, 0
        while at < len(rows):
            made = int(index._counters[kernel.FRESH])
            at = insert(at, rows)
            fresh = self._fresh[made : index._counters[kernel.FRESH]]
            where = (index._starts, index._lengths, index._arena)
            kernel.place(fresh, *where, index.buckets, index.live, index._saved, index._stamps)
            if at < len(rows):
                index._make_room(words(int(rows[at])))
                slots[slots < 0] = -1  # where a search ended is of no use in another table
                # Whatever this search has entered must be met by its other rows, in whichever table they look.
                index._move(self._fresh[: index._counters[kernel.FRESH]])

    def _touch(self, slots: Slots) -> None:
        index = self._index
        self._met = lookup.touch(slots, index._stamps, index._stamp, self._touched, self._met)

    def _memory(self, slots: Slots) -> tuple[Any, ...]:
        index = self._index
        return (
            index._table,
            index._arena,
            index._entries,
            index._starts,
            index._lengths,
            index.times,
            index._free,
            slots,
            self._fresh,
            index._counters,
        )

    def found(self, changed: bool) -> Found:
        index = self._index
        touched = self._touched[: self._met].copy()
        fresh = self._fresh[: index._counters[kernel.FRESH]].copy()
        if changed:
            index._dirty[touched] = True
        return Found(self._slots, touched, fresh)
