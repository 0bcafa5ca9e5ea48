"""Compiled loops of the sketches: small sets of counters by slot, kept as ordered lists of words.

HyperLogLog: 4,096 registers. While few are set a word is ``register << 8 | rank``; a list of 512 words is the dense
form, eight registers of one byte in each. Which form it is follows from the set of values, never from their order.

Quantiles: a word is ``bucket << 45 | count``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operators.kernels.lists import find, insert, make_room
from seep.model.hashing import compiled

REGISTER_BITS = 12
REGISTERS = 1 << REGISTER_BITS
DENSE = REGISTERS // 8
"""So many words are the dense form: a sparse list is always shorter."""
_RANK_BITS = 8
_LAST_RANK = 64 - REGISTER_BITS + 1
_SCALE = 0.5 / math.log(2.0) * REGISTERS * REGISTERS

COUNT_BITS = 45
_COUNT_MASK = np.int64((1 << COUNT_BITS) - 1)


@compiled
def registers_of(hashes: Any, words: Any) -> None:
    """The register that a value sets, and its rank: one more than the zeros at the front of the rest of its hash."""
    for row in range(hashes.shape[0]):
        register = np.int64(hashes[row] >> np.uint64(64 - REGISTER_BITS))
        rest = hashes[row] << np.uint64(REGISTER_BITS)
        rank = 1
        while rank < _LAST_RANK and rest < np.uint64(1 << 63):
            rest <<= np.uint64(1)
            rank += 1
        words[row] = register << np.int64(_RANK_BITS) | rank


@compiled
def _raise_register(word: Any, start: Any, arena: Any) -> None:
    """In the dense form."""
    register, rank = word >> _RANK_BITS, word & 255
    at, shift = start + (register >> 3), 8 * (register & 7)
    if (arena[at] >> shift) & 255 < rank:
        arena[at] = (arena[at] & ~(np.int64(255) << shift)) | (rank << shift)


@compiled
def set_registers(
    first: int, slots: Any, words: Any, starts: Any, lengths: Any, rooms: Any, arena: Any, counters: Any
) -> Any:
    for row in range(first, slots.shape[0]):
        slot, word = slots[row], words[row]
        if lengths[slot] == DENSE:
            _raise_register(word, starts[slot], arena)
            continue
        register = word >> _RANK_BITS
        at = find(register, _RANK_BITS, starts[slot], lengths[slot], arena)
        if at < starts[slot] + lengths[slot] and arena[at] >> _RANK_BITS == register:
            arena[at] = max(arena[at], word)
            continue
        place = at - starts[slot]
        if not make_room(slot, lengths[slot] + 1, starts, lengths, rooms, arena, counters):
            return row
        insert(starts[slot] + place, word, slot, starts, lengths, arena)
        if lengths[slot] == DENSE:
            sparse = arena[starts[slot] : starts[slot] + DENSE].copy()
            arena[starts[slot] : starts[slot] + DENSE] = 0
            for at in range(DENSE):
                _raise_register(sparse[at], starts[slot], arena)
    return slots.shape[0]


@compiled
def _sigma(share: Any) -> Any:
    if share == 1.0:
        return np.inf
    weight, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * weight
        weight += weight
    return total


@compiled
def _tau(share: Any) -> Any:
    if share == 0.0 or share == 1.0:
        return 0.0
    weight, total, before = 1.0, 1.0 - share, -1.0
    while total != before:
        share = math.sqrt(share)
        before = total
        weight *= 0.5
        total -= (1.0 - share) ** 2 * weight
    return total / 3.0


@compiled
def estimate(slots: Any, starts: Any, lengths: Any, arena: Any, result: Any) -> None:
    """Ertl's estimator (2017): without tables, and without a bias at the crossing from few to many."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        start, length = starts[slot], lengths[slot]
        ranks = np.zeros(_LAST_RANK + 1, np.int64)
        if length == DENSE:
            for at in range(start, start + DENSE):
                for part in range(8):
                    ranks[(arena[at] >> (8 * part)) & 255] += 1
        else:
            ranks[0] = REGISTERS - length
            for at in range(start, start + length):
                ranks[arena[at] & 255] += 1
        total = REGISTERS * _tau(1.0 - ranks[_LAST_RANK] / REGISTERS)
        for rank in range(_LAST_RANK - 1, 0, -1):
            total = 0.5 * (total + ranks[rank])
        total += REGISTERS * _sigma(ranks[0] / REGISTERS)
        result[row] = round(_SCALE / total)


@compiled
def count_buckets(
    first: int, slots: Any, words: Any, starts: Any, lengths: Any, rooms: Any, arena: Any, counters: Any
) -> Any:
    """Add each word's count to its bucket."""
    for row in range(first, slots.shape[0]):
        slot, word = slots[row], words[row]
        bucket = word >> COUNT_BITS
        at = find(bucket, COUNT_BITS, starts[slot], lengths[slot], arena)
        if at < starts[slot] + lengths[slot] and arena[at] >> COUNT_BITS == bucket:
            arena[at] += word & _COUNT_MASK
            continue
        place = at - starts[slot]
        if not make_room(slot, lengths[slot] + 1, starts, lengths, rooms, arena, counters):
            return row
        insert(starts[slot] + place, word, slot, starts, lengths, arena)
    return slots.shape[0]


@compiled
def discount_buckets(slots: Any, words: Any, starts: Any, lengths: Any, arena: Any) -> Any:
    """Take each word's count from its bucket; how many were not there."""
    missing = 0
    for row in range(slots.shape[0]):
        slot = slots[row]
        bucket, count = words[row] >> COUNT_BITS, words[row] & _COUNT_MASK
        start, end = starts[slot], starts[slot] + lengths[slot]
        at = find(bucket, COUNT_BITS, start, lengths[slot], arena)
        if at == end or arena[at] >> COUNT_BITS != bucket or arena[at] & _COUNT_MASK < count:
            missing += 1
            continue
        arena[at] -= count
        if arena[at] & _COUNT_MASK == 0:
            for behind in range(at, end - 1):
                arena[behind] = arena[behind + 1]
            lengths[slot] -= 1
    return missing


@compiled
def buckets_at(slots: Any, ranks: Any, starts: Any, lengths: Any, arena: Any, result: Any) -> None:
    """The bucket of the value that would be at this place if all were sorted."""
    for row in range(slots.shape[0]):
        start, left = starts[slots[row]], ranks[row]
        for at in range(start, start + lengths[slots[row]]):
            left -= arena[at] & _COUNT_MASK
            if left < 0:
                result[row] = arena[at] >> COUNT_BITS
                break
