"""Compiled loops of the key index: an open-addressing table from (key words, time) to a slot.

Keys are compared word by word, never trusted to a hash. Slots are stable for the life of an entry, so accumulators
are plain arrays by slot. Removing closes the gap by shifting back (no tombstones): a table whose windows come and go
does not slow down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import PRIME_1, PRIME_3, Words, compiled, is_valid, load_signed
from seep.model.keyspace import BUCKET_SHIFT

LATE = np.int64(-(2**63))
"""In place of a row's time: its window has closed ..."""
BROKEN = np.int64(-(2**63) + 1)
"""... or it has no usable time. Rows with either have no slot (-1)."""

HIGH_SLOT, FREE, ARENA, TOUCHED, FRESH, LIVE, GARBAGE = range(7)
"""Positions in the array of counters."""


@compiled
def mixed(digest: np.uint64, time: np.int64) -> np.uint64:
    return (digest ^ (np.uint64(time) * PRIME_3)) * PRIME_1


@compiled
def same_words(left: Words, left_at: int, right: Words, right_at: int, length: int) -> bool:
    word = 0
    while word < length and left[left_at + word] == right[right_at + word]:
        word += 1
    return word == length


@compiled
def find_or_insert(
    first: int,
    offsets: Any,
    words: Words,
    hashes: Words,
    times: Any,
    table: Any,
    arena: Words,
    entries: Any,
    starts: Any,
    lengths: Any,
    entry_times: Any,
    buckets: Any,
    stamps: Any,
    stamp: int,
    free: Any,
    slots: Any,
    touched: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """Give each row its slot, from row ``first`` on; answers the row at which there was no room (or the end)."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    for row in range(first, hashes.shape[0]):
        time = times[row] if timed else np.int64(0)
        if time <= BROKEN:
            slots[row] = -1
            continue
        start = offsets[row]
        length = offsets[row + 1] - start
        digest = mixed(hashes[row], time)
        at = (digest >> np.uint64(20)) & mask
        slot = np.int64(table[at])
        while slot >= 0:
            if (
                entries[slot] == digest
                and entry_times[slot] == time
                and lengths[slot] == length
                and same_words(arena, starts[slot], words, start, length)
            ):
                break
            at = (at + np.uint64(1)) & mask
            slot = np.int64(table[at])
        if slot < 0:
            full = counters[FREE] == 0 and counters[HIGH_SLOT] == entries.shape[0]
            if full or counters[ARENA] + length > arena.shape[0]:
                return row
            if counters[FREE] > 0:
                counters[FREE] -= 1
                slot = free[counters[FREE]]
            else:
                slot = counters[HIGH_SLOT]
                counters[HIGH_SLOT] += 1
            table[at] = slot
            entries[slot] = digest
            entry_times[slot] = time
            buckets[slot] = hashes[row] >> BUCKET_SHIFT
            lengths[slot] = length
            starts[slot] = counters[ARENA]
            for word in range(length):
                arena[counters[ARENA] + word] = words[start + word]
            counters[ARENA] += length
            counters[LIVE] += 1
            fresh[counters[FRESH]] = slot
            counters[FRESH] += 1
            stamps[slot] = -1
        slots[row] = slot
        if stamps[slot] != stamp:
            stamps[slot] = stamp
            touched[counters[TOUCHED]] = slot
            counters[TOUCHED] += 1
    return hashes.shape[0]


@compiled
def rebuild(table: Any, entries: Any, live: Any) -> None:
    """Fill an empty table with every live entry."""
    mask = np.uint64(table.shape[0] - 1)
    for slot in range(live.shape[0]):
        if live[slot]:
            at = (entries[slot] >> np.uint64(20)) & mask
            while table[at] >= 0:
                at = (at + np.uint64(1)) & mask
            table[at] = slot


@compiled
def remove(slots: Any, table: Any, entries: Any, lengths: Any, free: Any, counters: Any) -> None:
    mask = np.uint64(table.shape[0] - 1)
    for position in range(slots.shape[0]):
        slot = slots[position]
        hole = (entries[slot] >> np.uint64(20)) & mask
        while table[hole] != slot:
            hole = (hole + np.uint64(1)) & mask
        probe = hole
        while True:
            probe = (probe + np.uint64(1)) & mask
            other = table[probe]
            if other < 0:
                break
            home = (entries[other] >> np.uint64(20)) & mask
            # Move it back unless its home lies cyclically in (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                table[hole] = other
                hole = probe
        table[hole] = -1
        free[counters[FREE]] = slot
        counters[FREE] += 1
        counters[LIVE] -= 1
        counters[GARBAGE] += lengths[slot]


@compiled
def move_words(slots: Any, starts: Any, lengths: Any, source: Words, target: Words) -> int:
    """Copy the keys of these slots to the front of ``target``; answers the words used."""
    used = 0
    for position in range(slots.shape[0]):
        slot = slots[position]
        for word in range(lengths[slot]):
            target[used + word] = source[starts[slot] + word]
        starts[slot] = used
        used += lengths[slot]
    return used


@compiled
def gather_words(slots: Any, starts: Any, lengths: Any, arena: Words, times: Any, timed: bool, offsets: Any) -> Words:
    """The identity of each slot as words, one after the other: its key, then (windows) its time."""
    total = 0
    for position in range(slots.shape[0]):
        total += lengths[slots[position]] + (1 if timed else 0)
        offsets[position + 1] = total * 8
    result = np.empty(total, np.uint64)
    at = 0
    for position in range(slots.shape[0]):
        slot = slots[position]
        for word in range(lengths[slot]):
            result[at + word] = arena[starts[slot] + word]
        at += lengths[slot]
        if timed:
            result[at] = np.uint64(times[slot])
            at += 1
    return result


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


@compiled
def window_starts(
    rows: int, values: int, validity: int, bit: int, size: int, offset: int, watermark: int, limit: int, result: Any
) -> Any:
    """The start of each row's window; LATE when it ends by the watermark, BROKEN when its time is null or absurd.

    Answers how many were late and broken.
    """
    late = 0
    broken = 0
    start = np.int64(0)
    stop = np.int64(0)
    for row in range(rows):
        if not is_valid(validity, bit + row):
            result[row] = BROKEN
            broken += 1
            continue
        time = load_signed(values + 8 * row)
        if time <= -limit or time >= limit:
            result[row] = BROKEN
            broken += 1
            continue
        if time < start or time >= stop:
            start = time - (time - offset) % size
            stop = start + size
        if stop <= watermark:
            result[row] = LATE
            late += 1
        else:
            result[row] = start
    return late, broken
