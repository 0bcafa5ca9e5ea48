"""Compiled loops that put entries of the key index into the order in which state is emitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import Words, compiled


@compiled
def _swapped(word: np.uint64) -> np.uint64:
    result = np.uint64(0)
    for _ in range(8):
        result = (result << np.uint64(8)) | (word & np.uint64(0xFF))
        word >>= np.uint64(8)
    return result


@compiled
def leading_words(slots: Any, starts: Any, lengths: Any, arena: Words, which: int) -> Words:
    """One word of each key, as a number that sorts as its bytes do (0 where the key is shorter)."""
    result = np.zeros(slots.shape[0], np.uint64)
    for position in range(slots.shape[0]):
        slot = slots[position]
        if which < lengths[slot]:
            result[position] = _swapped(arena[starts[slot] + which])
    return result


@compiled
def _before(left: int, right: int, starts: Any, lengths: Any, arena: Words) -> Any:
    for word in range(min(lengths[left], lengths[right])):
        one = _swapped(arena[starts[left] + word])
        other = _swapped(arena[starts[right] + word])
        if one != other:
            return one < other
    return lengths[left] < lengths[right]


@compiled
def settle_ties(
    slots: Any, buckets: Any, times: Any, first: Words, second: Words, starts: Any, lengths: Any, arena: Words
) -> None:
    """Finish a sort by (bucket, time, first two words): runs of equals, few and short, by their whole key."""
    for position in range(1, slots.shape[0]):
        slot = slots[position]
        at = position
        while (
            at > 0
            and buckets[slots[at - 1]] == buckets[slot]
            and times[slots[at - 1]] == times[slot]
            and first[at - 1] == first[position]
            and second[at - 1] == second[position]
            and _before(slot, slots[at - 1], starts, lengths, arena)
        ):
            slots[at] = slots[at - 1]
            at -= 1
        slots[at] = slot
