"""Which entries of a timed index belong to one key: what windows that are made of several entries need.

Keys have numbers of their own here; all of it is derived from the entries, so it is never saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.index import Found, KeyIndex, Slots
from operators.kernels import panes as kernel
from operators.room import grown

_UNMARKED = np.empty(0, np.bool_)
_NOTHING = np.empty(0, np.int64)


class Owners:
    """The keys of the entries of ``entries``, and the entries of each key in order of time."""

    def __init__(self, entries: KeyIndex) -> None:
        self._entries = entries
        self.keys = KeyIndex(entries.kinds, timed=False)
        self.numbers = np.zeros(0, np.int64)
        """The key's number, by slot of the entry."""
        self.heads = np.zeros(0, np.int64)
        self.nexts = np.zeros(0, np.int64)

    def find(self, columns: Sequence[pa.Array], rows: int) -> Found:
        """The number of each row's key (as a slot of `keys`), made if need be."""
        found = self.keys.find(columns, rows)
        if len(self.heads) < self.keys.capacity:
            self.heads = grown(self.heads, self.keys.capacity)
        self.heads[found.fresh] = -1
        return found

    def add(self, slots: Slots) -> None:
        """These entries are new."""
        self.add_known(slots, slots, self.find(self._entries.keys(slots), len(slots)).slots)

    def add_known(self, fresh: Slots, slots: Slots, numbers: Slots) -> None:
        """The same, given for ``slots``, among which they are, the numbers of their keys."""
        if len(self.numbers) < self._entries.capacity:
            self.numbers = grown(self.numbers, self._entries.capacity)
            self.nexts = grown(self.nexts, self._entries.capacity)
        self.numbers[slots] = numbers
        kernel.link(fresh, self.numbers, self._entries.times, self.heads, self.nexts)

    def remove(self, slots: Slots) -> Slots:
        """These entries are gone. Answers the keys that have none any more; they stay until they are forgotten."""
        emptied = np.empty(len(slots), np.int64)
        return emptied[: kernel.unlink(slots, self.numbers, self.heads, self.nexts, emptied)]

    def forget(self, numbers: Slots) -> None:
        """Give up those of these keys (each given once) that have no entry."""
        self.keys.remove(numbers[self.heads[numbers] < 0])

    def restart(self) -> None:
        """The entries were loaded: begin again with them. Keys that were loaded as well stay."""
        self.heads = np.full(self.keys.capacity, -1, np.int64)
        self.add(self._entries.all())

    def windows(
        self, numbers: Slots, lows: Any, highs: Any, size: int, every: int, offset: int, marked: Any = _UNMARKED
    ) -> tuple[Slots, Slots, Slots, Slots]:
        """The windows of these keys that hold an entry (a marked one), each from its ``low`` until before its ``high``:
        their keys' numbers, their starts, and their entries, window ``w`` having those from ``bounds[w]`` on."""
        where = (numbers, lows, highs, size, every, offset, self._entries.times, self.heads, self.nexts, marked)
        made, used = kernel.windows_of(*where, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
        owners, starts = np.empty(made, np.int64), np.empty(made, np.int64)
        bounds, panes = np.zeros(made + 1, np.int64), np.empty(used, np.int64)
        kernel.windows_of(*where, owners, starts, bounds, panes)
        return owners, starts, bounds, panes

    def order(self, numbers: Slots, times: Any, *more: Any) -> Any:
        """The positions of these (key, time, ...) in the order in which they are emitted: bucket, time, key bytes,
        then what else there is."""
        distinct, which = np.unique(numbers, return_inverse=True)
        rank = np.empty(len(distinct), np.int64)
        rank[np.searchsorted(distinct, self.keys.ordered(distinct))] = np.arange(len(distinct))
        return np.lexsort((*more[::-1], rank[which], times, self.keys.buckets[numbers]))
