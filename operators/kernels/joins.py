"""Compiled loops of the joins: each key's waiting rows in a *lane*, ordered by time, then arrival.

``entries`` holds the lanes, each a stretch of (time, row number) with room to grow; ``lanes`` says, by slot, where each
is (what belongs together lies together: one line of the cache, not three). What a row joins with is a stretch of the
other side's lane, found by halving; what has become too old is its beginning. So neither costs more than it finds,
however many rows a key has waiting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled

EMPTY = np.int64(2**63 - 1)
"""In place of the first time of a lane without rows."""
START, LENGTH, ROOM = range(3)
"""Positions in a lane's description ..."""
TIME, ROW = range(2)
"""... and in an entry."""
_LEAST_ROOM = 4


@compiled
def arrivals(slots: Any, counts: Any, first: int, result: Any) -> Any:
    """Number each key's rows, from ``first`` on; leaves in ``counts`` (all zero before) how many each has. Answers the
    greatest of these."""
    most = np.int64(0)
    for row in range(slots.shape[0]):
        slot = slots[row]
        count = counts[slot]
        result[row] = first + count
        counts[slot] = count + 1
        most = max(most, count + 1)
    return most


@compiled
def grouped(slots: Any, sequence: Any, touched: Any, counts: Any, offsets: Any, rows: Any) -> None:
    """The rows by key: those of ``touched[i]`` are ``rows[offsets[i]:offsets[i + 1]]``, in the order of ``sequence``.
    ``counts``, as `arrivals` left it, is all zero again."""
    total = np.int64(0)
    for at in range(touched.shape[0]):
        slot = touched[at]
        offsets[at] = total
        count = counts[slot]
        counts[slot] = total
        total += count
    offsets[touched.shape[0]] = total
    for at in range(sequence.shape[0]):
        row = sequence[at]
        slot = slots[row]
        rows[counts[slot]] = row
        counts[slot] += 1
    for at in range(touched.shape[0]):
        counts[touched[at]] = 0


@compiled
def insert(
    first: int,
    touched: Any,
    offsets: Any,
    rows: Any,
    times: Any,
    base: int,
    lanes: Any,
    firsts: Any,
    entries: Any,
    used: Any,
) -> Any:
    """Put each key's new rows into its lane, from the key ``first`` on; a row is called ``base`` + its number. Its rows
    are put in the order of their times first: where a key has many, they had better be so already. Answers the key for
    which there was no room (or the end)."""
    for at in range(first, touched.shape[0]):
        slot = touched[at]
        new = offsets[at + 1] - offsets[at]
        for position in range(offsets[at] + 1, offsets[at + 1]):
            row = rows[position]
            to = position
            while to > offsets[at] and times[rows[to - 1]] > times[row]:
                rows[to] = rows[to - 1]
                to -= 1
            rows[to] = row
        length = lanes[slot, LENGTH]
        if length + new > lanes[slot, ROOM]:
            room = max(_LEAST_ROOM, 2 * (length + new))
            if used[0] + room > entries.shape[0]:
                return at
            for entry in range(length):
                entries[used[0] + entry, TIME] = entries[lanes[slot, START] + entry, TIME]
                entries[used[0] + entry, ROW] = entries[lanes[slot, START] + entry, ROW]
            lanes[slot, START] = used[0]
            lanes[slot, ROOM] = room
            used[0] += room
        start = lanes[slot, START]
        old = start + length - 1
        put = old + new
        for position in range(offsets[at + 1] - 1, offsets[at] - 1, -1):
            row = rows[position]
            time = times[row]
            while old >= start and entries[old, TIME] > time:
                entries[put, TIME] = entries[old, TIME]
                entries[put, ROW] = entries[old, ROW]
                put -= 1
                old -= 1
            entries[put, TIME] = time
            entries[put, ROW] = base + row
            put -= 1
        lanes[slot, LENGTH] = length + new
        if old < start:
            firsts[slot] = entries[start, TIME]
    return np.int64(touched.shape[0])


@compiled
def _position(entries: Any, low: Any, high: Any, time: Any) -> Any:
    """The first entry of ``[low, high)`` that is not before this time."""
    while low < high:
        middle = (low + high) >> 1
        if entries[middle, TIME] < time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def partners(slots: Any, lows: Any, highs: Any, lanes: Any, entries: Any, begins: Any, counts: Any) -> Any:
    """For each row the stretch of the lane of its key with times from low to high, both included; and how many in
    all."""
    total = np.int64(0)
    for row in range(slots.shape[0]):
        slot = slots[row]
        begin = lanes[slot, START]
        count = np.int64(0)
        if lanes[slot, LENGTH] and lows[row] <= highs[row]:
            end = begin + lanes[slot, LENGTH]
            begin = _position(entries, begin, end, lows[row])
            count = _position(entries, begin, end, highs[row] + 1) - begin
        begins[row] = begin
        counts[row] = count
        total += count
    return total


@compiled
def expand(begins: Any, counts: Any, base: int, entries: Any, own: Any, other: Any) -> None:
    """Each row with each of its partners, by their row numbers."""
    at = 0
    for row in range(begins.shape[0]):
        for entry in range(begins[row], begins[row] + counts[row]):
            own[at] = base + row
            other[at] = entries[entry, ROW]
            at += 1


@compiled
def expire(due: Any, limit: int, lanes: Any, firsts: Any, entries: Any, gone: Any) -> Any:
    """Drop the rows of these keys with times before the limit; they are listed in ``gone``, key by key, each key's in
    the order of its lane. Answers how many."""
    total = np.int64(0)
    for at in range(due.shape[0]):
        slot = due[at]
        start = lanes[slot, START]
        length = lanes[slot, LENGTH]
        dropped = 0
        while dropped < length and entries[start + dropped, TIME] < limit:
            gone[total] = entries[start + dropped, ROW]
            total += 1
            dropped += 1
        left = length - dropped
        if left <= dropped:
            # Moving what is left costs no more than what went, and keeps the room.
            for entry in range(start, start + left):
                entries[entry, TIME] = entries[entry + dropped, TIME]
                entries[entry, ROW] = entries[entry + dropped, ROW]
        else:
            start += dropped
            lanes[slot, START] = start
            lanes[slot, ROOM] -= dropped
        lanes[slot, LENGTH] = left
        firsts[slot] = entries[start, TIME] if left else EMPTY
    return total


@compiled
def repack(lanes: Any, numbers: Any, old: Any, entries: Any) -> Any:
    """Move the lanes to other memory, without gaps. Rows that have got other numbers are found in ``numbers`` (empty:
    they have not). Answers the end."""
    to = np.int64(0)
    for slot in range(lanes.shape[0]):
        start = lanes[slot, START]
        length = lanes[slot, LENGTH]
        for entry in range(length):
            row = old[start + entry, ROW]
            entries[to + entry, TIME] = old[start + entry, TIME]
            entries[to + entry, ROW] = numbers[row] if numbers.shape[0] else row
        lanes[slot, START] = to
        lanes[slot, ROOM] = length
        to += length
    return to
