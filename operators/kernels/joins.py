"""Compiled loops of the joins: each key's waiting rows in a *lane*, ordered by time, then arrival.

A lane is a stretch of two arrays, ``lane_times`` and ``lane_rows``, with room to grow. What a row joins with is a
stretch of the other side's lane, found by halving; what has become too old is its beginning. So neither costs more
than it finds, however many rows a key has waiting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled

EMPTY = np.int64(2**63 - 1)
"""In place of the first time of a lane without rows."""
_LEAST_ROOM = 4


@compiled
def arrivals(slots: Any, counts: Any, first: int, result: Any) -> None:
    """Number each key's rows, from ``first`` on; leaves in ``counts`` (all zero before) how many each has."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        result[row] = first + counts[slot]
        counts[slot] += 1


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
    starts: Any,
    lengths: Any,
    rooms: Any,
    firsts: Any,
    lane_times: Any,
    lane_rows: Any,
    used: Any,
) -> Any:
    """Put each key's new rows (in the order of their times) into its lane, from the key ``first`` on; a row is called
    ``base`` + its number. Answers the key for which there was no room (or the end)."""
    for at in range(first, touched.shape[0]):
        slot = touched[at]
        new = offsets[at + 1] - offsets[at]
        length = lengths[slot]
        if length + new > rooms[slot]:
            room = max(_LEAST_ROOM, 2 * (length + new))
            if used[0] + room > lane_times.shape[0]:
                return at
            to, start = used[0], starts[slot]
            for entry in range(length):
                lane_times[to + entry] = lane_times[start + entry]
                lane_rows[to + entry] = lane_rows[start + entry]
            starts[slot] = to
            rooms[slot] = room
            used[0] += room
        start = starts[slot]
        old = start + length - 1
        put = old + new
        for position in range(offsets[at + 1] - 1, offsets[at] - 1, -1):
            row = rows[position]
            time = times[row]
            while old >= start and lane_times[old] > time:
                lane_times[put] = lane_times[old]
                lane_rows[put] = lane_rows[old]
                put -= 1
                old -= 1
            lane_times[put] = time
            lane_rows[put] = base + row
            put -= 1
        lengths[slot] = length + new
        firsts[slot] = lane_times[start]
    return np.int64(touched.shape[0])


@compiled
def _position(lane_times: Any, low: Any, high: Any, time: Any) -> Any:
    """The first entry of ``[low, high)`` that is not before this time."""
    while low < high:
        middle = (low + high) >> 1
        if lane_times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def partners(
    slots: Any, lows: Any, highs: Any, starts: Any, lengths: Any, lane_times: Any, begins: Any, counts: Any
) -> Any:
    """For each row the stretch of the lane of its key with times from low to high, both included; and how many in
    all."""
    total = np.int64(0)
    for row in range(slots.shape[0]):
        slot = slots[row]
        start = starts[slot]
        end = start + lengths[slot]
        begin = _position(lane_times, start, end, lows[row])
        count = _position(lane_times, begin, end, highs[row] + 1) - begin if lows[row] <= highs[row] else 0
        begins[row] = begin
        counts[row] = count
        total += count
    return total


@compiled
def expand(begins: Any, counts: Any, base: int, lane_rows: Any, own: Any, other: Any) -> None:
    """Each row with each of its partners, by their row numbers."""
    at = 0
    for row in range(begins.shape[0]):
        for entry in range(begins[row], begins[row] + counts[row]):
            own[at] = base + row
            other[at] = lane_rows[entry]
            at += 1


@compiled
def expire(
    due: Any,
    limit: int,
    starts: Any,
    lengths: Any,
    rooms: Any,
    firsts: Any,
    lane_times: Any,
    lane_rows: Any,
    gone: Any,
) -> Any:
    """Drop the rows of these keys with times before the limit; they are listed in ``gone``, key by key, each key's in
    the order of its lane. Answers how many."""
    total = np.int64(0)
    for at in range(due.shape[0]):
        slot = due[at]
        start = starts[slot]
        length = lengths[slot]
        dropped = 0
        while dropped < length and lane_times[start + dropped] < limit:
            gone[total] = lane_rows[start + dropped]
            total += 1
            dropped += 1
        left = length - dropped
        if left <= dropped:
            # Moving what is left costs no more than what went, and keeps the room.
            for entry in range(left):
                lane_times[start + entry] = lane_times[start + dropped + entry]
                lane_rows[start + entry] = lane_rows[start + dropped + entry]
        else:
            starts[slot] = start + dropped
            rooms[slot] -= dropped
        lengths[slot] = left
        firsts[slot] = lane_times[starts[slot]] if left else EMPTY
    return total


@compiled
def repack(
    slots: Any,
    starts: Any,
    lengths: Any,
    rooms: Any,
    numbers: Any,
    old_times: Any,
    old_rows: Any,
    lane_times: Any,
    lane_rows: Any,
) -> Any:
    """Move the lanes of these keys into other arrays, without gaps; all other keys have no room. Rows that have got
    other numbers are found in ``numbers`` (empty: they have not). Answers the end."""
    rooms[:] = 0
    to = np.int64(0)
    for at in range(slots.shape[0]):
        slot = slots[at]
        start = starts[slot]
        for entry in range(lengths[slot]):
            row = old_rows[start + entry]
            lane_times[to + entry] = old_times[start + entry]
            lane_rows[to + entry] = numbers[row] if numbers.shape[0] else row
        starts[slot] = to
        rooms[slot] = lengths[slot]
        to += lengths[slot]
    return to
