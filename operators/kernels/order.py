"""The compiled loop that puts entries of the key index into the order in which state is emitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import Words, compiled
from seep.model.ids import BUCKETS

_RUN = 16
"""So many neighbours are sorted by insertion; longer stretches of one bucket are merged from such runs."""


@compiled
def _swapped(word: np.uint64) -> np.uint64:
    """The number that sorts as the word's bytes do."""
    result = np.uint64(0)
    for _ in range(8):
        result = (result << np.uint64(8)) | (word & np.uint64(0xFF))
        word >>= np.uint64(8)
    return result


@compiled
def _longer_before(left: int, right: int, starts: Any, lengths: Any, arena: Words) -> Any:
    """Which of two keys is first whose first three words are equal?"""
    for word in range(3, min(lengths[left], lengths[right])):
        one = _swapped(arena[starts[left] + word])
        other = _swapped(arena[starts[right] + word])
        if one != other:
            return one < other
    return lengths[left] < lengths[right]


@compiled
def by_place(slots: Any, buckets: Any, times: Any, starts: Any, lengths: Any, arena: Words) -> Any:
    """These slots by (bucket, time, key bytes): buckets by counting, each of them by what its keys begin with, which
    lies side by side then, and by the rest where that is equal. The comparison is written out where it is wanted: as a
    function with all these arrays it costs more than the rest."""
    rows = slots.shape[0]
    timed = times.shape[0] > 0
    ends = np.zeros(BUCKETS + 1, np.int64)
    for position in range(rows):
        ends[buckets[slots[position]] + 1] += 1
    for bucket in range(BUCKETS):
        ends[bucket + 1] += ends[bucket]
    placed = np.empty(rows, np.int64)
    leading = np.zeros((rows, 4), np.uint64)
    for position in range(rows):
        slot = slots[position]
        bucket = buckets[slot]
        at = ends[bucket]
        ends[bucket] += 1
        placed[at] = slot
        if timed:
            leading[at, 0] = np.uint64(times[slot]) ^ np.uint64(1 << 63)
        begin = starts[slot]
        for word in range(min(3, lengths[slot])):
            leading[at, 1 + word] = _swapped(arena[begin + word])
    order = np.arange(rows)
    spare = np.empty(rows, np.int64)
    low = np.int64(0)
    for bucket in range(BUCKETS):
        high = ends[bucket]
        for begin in range(low, high, _RUN):
            for position in range(begin + 1, min(high, begin + _RUN)):
                entry = order[position]
                at = position
                while at > begin:
                    other = order[at - 1]
                    part = 0
                    while part < 4 and leading[entry, part] == leading[other, part]:
                        part += 1
                    if part < 4:
                        if leading[entry, part] > leading[other, part]:
                            break
                    elif not _longer_before(placed[entry], placed[other], starts, lengths, arena):
                        break
                    order[at] = other
                    at -= 1
                order[at] = entry
        width = np.int64(_RUN)
        while width < high - low:
            for begin in range(low, high, 2 * width):
                middle, end = min(high, begin + width), min(high, begin + 2 * width)
                left, right = begin, middle
                for position in range(begin, end):
                    takes_left = right >= end
                    if left < middle and right < end:
                        one, other = order[left], order[right]
                        part = 0
                        while part < 4 and leading[one, part] == leading[other, part]:
                            part += 1
                        if part < 4:
                            takes_left = leading[one, part] < leading[other, part]
                        else:
                            takes_left = not _longer_before(placed[other], placed[one], starts, lengths, arena)
                    if takes_left:
                        spare[position] = order[left]
                        left += 1
                    else:
                        spare[position] = order[right]
                        right += 1
            for position in range(low, high):
                order[position] = spare[position]
            width *= 2
        low = high
    for position in range(rows):
        spare[position] = placed[order[position]]
    return spare
