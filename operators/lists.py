"""Lists of 64-bit words by slot, in one arena: what aggregates that keep values stand on.

Appending costs what is appended (a list that outgrows its room doubles it); what lists leave behind is dropped when the
arena has to grow. Words are whatever the owner says: values, positions of rows, counters with their bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import Slots
from operators.kernels import lists as kernel
from operators.room import grown
from seep.errors import Bug, Misuse

Words = npt.NDArray[np.int64]


class Lists:
    """One list for each slot."""

    def __init__(self) -> None:
        self.starts = np.zeros(0, np.int64)
        self.lengths = np.zeros(0, np.int64)
        self.ordered = np.zeros(0, np.int64)
        """So many words at the beginning of a list are in order (`sort`)."""
        self.arena = np.zeros(1, np.int64)  # too short for any list, so that the first one widens it
        self._rooms = np.zeros(0, np.int64)
        self._counters = np.zeros(2, np.int64)

    @property
    def size_bytes(self) -> int:
        return int(self.arena.nbytes + 4 * self.starts.nbytes)

    @property
    def held(self) -> int:
        """Words in all lists."""
        return int(self.lengths.sum())

    def grow(self, capacity: int) -> None:
        for name in ("starts", "lengths", "ordered", "_rooms"):
            setattr(self, name, grown(getattr(self, name), capacity))

    def clear(self, slots: Slots) -> None:
        self._counters[kernel.GARBAGE] += self._rooms[slots].sum()
        for column in (self.lengths, self.ordered, self._rooms):
            column[slots] = 0

    def append(self, slots: Slots, words: Words) -> None:
        """Each word to the end of its slot's list."""
        self.fill(lambda first: kernel.append(first, slots, words, *self.memory), len(slots))

    @property
    def memory(self) -> tuple[Any, ...]:
        """What the compiled loops that enter words are given."""
        return self.starts, self.lengths, self._rooms, self.arena, self._counters

    def fill(self, enter: Callable[[int], int], rows: int) -> None:
        """Run a loop that enters words until it has come to the last row, making room whenever it finds none."""
        row = enter(0)
        while row < rows:
            self._widen(rows - row)
            row = enter(row)

    def _widen(self, rows: int) -> None:
        live = int(self._counters[kernel.USED] - self._counters[kernel.GARBAGE])
        # The longest list may double and still leave a place for each row.
        arena = np.zeros(3 * live + 4 * rows + 64, np.int64)
        slots = np.flatnonzero(self._rooms)
        self._counters[kernel.USED] = kernel.move(slots, self.starts, self.lengths, self._rooms, self.arena, arena)
        self._counters[kernel.GARBAGE] = 0
        self.arena = arena

    def sort(self, slots: Slots) -> None:
        kernel.sort(slots, self.starts, self.lengths, self.ordered, self.arena)

    def take_out(self, slots: Slots, words: Words) -> None:
        """Take one such word out of each list."""
        if kernel.take_out(slots, words, self.starts, self.lengths, self.ordered, self.arena):
            raise Bug("a value is taken back that was never added")

    def offsets(self, slots: Slots) -> npt.NDArray[np.int32]:
        """Where each of these lists begins and ends when they stand one behind the other."""
        result = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(self.lengths[slots], out=result[1:])
        return result

    def words(self, slots: Slots) -> Words:
        """The words of these lists, one list behind the other."""
        result = np.empty(int(self.lengths[slots].sum()), np.int64)
        kernel.gather(slots, self.starts, self.lengths, self.arena, result)
        return result

    def save(self, slots: Slots) -> pa.Array:
        return packed(self.offsets(slots), self.words(slots))

    def restore(self, slots: Slots, saved: pa.Array) -> None:
        """These lists in place of those that are there."""
        self.clear(slots)
        self.append(*unpacked(slots, saved))


def packed(offsets: npt.NDArray[np.int32], words: Words) -> pa.Array:
    """Lists of words as bytes, which Arrow and digests handle faster than lists of numbers."""
    if int(offsets[-1]) >= 2**28:
        raise Misuse("the values kept for the keys of one partition exceed 2 GiB; use more partitions, or approx=True")
    buffers = [None, pa.py_buffer(8 * offsets), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def unpacked(slots: Slots, saved: pa.Array) -> tuple[Slots, Words]:
    """Undo `packed`, one list for each slot: the slot of each word, and the words, without those at slot -1."""
    rows = len(saved)
    if rows == 0 or saved.buffers()[2] is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    bounds = np.frombuffer(saved.buffers()[1], np.int32)[saved.offset : saved.offset + rows + 1] // 8
    words = np.frombuffer(saved.buffers()[2], np.int64, count=int(bounds[-1]))[bounds[0] :]
    owners = np.repeat(slots, np.diff(bounds))
    # A copy: Arrow's memory is another type to the compiled loops.
    return (owners[owners >= 0], words[owners >= 0]) if (slots < 0).any() else (owners, words.copy())
