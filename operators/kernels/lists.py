"""Compiled loops over lists of words by slot, all in one arena: append, sort, take out, enter once.

A list is ``arena[starts[slot] : starts[slot] + lengths[slot]]`` with room for ``rooms[slot]`` words. One that outgrows
its room moves to the end of the arena with twice the room. A loop that finds no place there stops and says at which
row; the caller makes the arena larger and goes on from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled

USED, GARBAGE = range(2)
"""In ``counters``: words of the arena given out, and those of them that lists have left behind."""
_FIRST_ROOM = 4


@compiled
def make_room(slot: Any, needed: Any, starts: Any, lengths: Any, rooms: Any, arena: Any, counters: Any) -> bool:
    if needed <= rooms[slot]:
        return True
    room = max(2 * rooms[slot], np.int64(_FIRST_ROOM))
    while room < needed:
        room *= 2
    target = counters[USED]
    if target + room > arena.shape[0]:
        return False
    source = starts[slot]
    for at in range(lengths[slot]):
        arena[target + at] = arena[source + at]
    counters[USED] += room
    counters[GARBAGE] += rooms[slot]
    starts[slot] = target
    rooms[slot] = room
    return True


@compiled
def append(first: int, slots: Any, words: Any, starts: Any, lengths: Any, rooms: Any, arena: Any, counters: Any) -> Any:
    for row in range(first, slots.shape[0]):
        slot = slots[row]
        length = lengths[slot]
        if not make_room(slot, length + 1, starts, lengths, rooms, arena, counters):
            return row
        arena[starts[slot] + length] = words[row]
        lengths[slot] = length + 1
    return slots.shape[0]


@compiled
def gather(slots: Any, starts: Any, lengths: Any, arena: Any, words: Any) -> None:
    target = 0
    for row in range(slots.shape[0]):
        start = starts[slots[row]]
        for at in range(lengths[slots[row]]):
            words[target] = arena[start + at]
            target += 1


@compiled
def move(slots: Any, starts: Any, lengths: Any, rooms: Any, arena: Any, larger: Any) -> Any:
    """Every list into another arena, one behind the other; how much of it they take."""
    target = np.int64(0)
    for row in range(slots.shape[0]):
        slot = slots[row]
        start = starts[slot]
        for at in range(lengths[slot]):
            larger[target + at] = arena[start + at]
        starts[slot] = target
        target += rooms[slot]
    return target


@compiled
def take_out(slots: Any, words: Any, starts: Any, lengths: Any, ordered: Any, arena: Any) -> Any:
    """Take one such word out of each row's list, the last one if there are several; how many were not there."""
    missing = 0
    for row in range(slots.shape[0]):
        slot = slots[row]
        start, last = starts[slot], lengths[slot] - 1
        at = last
        while at >= 0 and arena[start + at] != words[row]:
            at -= 1
        if at < 0:
            missing += 1
            continue
        for behind in range(at, last):
            arena[start + behind] = arena[start + behind + 1]
        if ordered[slot] > at:
            ordered[slot] -= 1
        lengths[slot] = last
    return missing


@compiled
def sort(slots: Any, starts: Any, lengths: Any, ordered: Any, arena: Any) -> None:
    """Order each list. Its first ``ordered[slot]`` words already are: only what came since is sorted, then merged."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        start, known, length = starts[slot], ordered[slot], lengths[slot]
        if known < length:
            tail = np.sort(arena[start + known : start + length])
            left, right, target = start + known - 1, length - known - 1, start + length - 1
            while right >= 0:
                if left >= start and arena[left] > tail[right]:
                    arena[target] = arena[left]
                    left -= 1
                else:
                    arena[target] = tail[right]
                    right -= 1
                target -= 1
            ordered[slot] = length


@compiled
def find(key: Any, shift: Any, start: Any, length: Any, arena: Any) -> Any:
    """Where in an ordered list the word with this key (its bits from ``shift`` on) is, or would be."""
    low, high = start, start + length
    while low < high:
        middle = (low + high) >> 1
        if arena[middle] >> shift < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def insert(at: Any, word: Any, slot: Any, starts: Any, lengths: Any, arena: Any) -> None:
    """Put a word at this place of a list that has room for it."""
    end = starts[slot] + lengths[slot]
    while end > at:
        arena[end] = arena[end - 1]
        end -= 1
    arena[at] = word
    lengths[slot] += 1
