"""Compiled loops of the key index: an open-addressing table from (key words, time) to a slot.

Keys are compared word by word, never trusted to a hash. Slots are stable for the life of an entry, so accumulators
are plain arrays by slot. Removing closes the gap by shifting back (no tombstones): a table whose windows come and go
does not slow down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.lookup import (
    ONE,
    differing_text,
    differing_words,
    digest_of_text,
    digest_of_words,
)
from operators.kernels.windows import BROKEN
from seep.model.hashing import Words, compiled, is_valid, load_offset, load_word, tail_word, xxh64
from seep.model.keyspace import BUCKET_SHIFT

HIGH_SLOT, FREE, ARENA, FRESH, LIVE, GARBAGE = range(6)
"""Positions in the array of counters."""


@compiled
def _enter(
    at: Any,
    digest: np.uint64,
    time: Any,
    length: Any,
    table: Any,
    arena: Words,
    entries: Any,
    starts: Any,
    lengths: Any,
    entry_times: Any,
    free: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """A new entry at a free place of the table; its words are still to be written. -1: there is no room."""
    full = counters[FREE] == 0 and counters[HIGH_SLOT] == entries.shape[0]
    if full or counters[ARENA] + length > arena.shape[0]:
        return np.int64(-1)
    if counters[FREE] > 0:
        counters[FREE] -= 1
        slot = free[counters[FREE]]
    else:
        slot = counters[HIGH_SLOT]
        counters[HIGH_SLOT] += 1
    table[at] = slot
    entries[slot] = digest
    entry_times[slot] = time
    lengths[slot] = length
    starts[slot] = counters[ARENA]
    counters[ARENA] += length
    counters[LIVE] += 1
    fresh[counters[FRESH]] = slot
    counters[FRESH] += 1
    return slot


@compiled
def _bucket(slot: Any, starts: Any, lengths: Any, arena: Words) -> Any:
    return xxh64(arena, starts[slot], starts[slot] + lengths[slot]) >> BUCKET_SHIFT


@compiled
def insert(
    first: int,
    offsets: Any,
    words: Words,
    times: Any,
    table: Any,
    arena: Words,
    entries: Any,
    starts: Any,
    lengths: Any,
    entry_times: Any,
    buckets: Any,
    free: Any,
    slots: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """Give each row that has none its slot (but for the late and the broken), from row ``first`` on.

    Answers the row at which there was no room (or the end). A key may be missing in several rows: only the first of
    them enters it."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    rows = slots.shape[0]
    for row in range(first, rows):
        time = times[row] if timed else np.int64(0)
        if slots[row] >= 0 or time <= BROKEN:
            continue
        start = offsets[row]
        length = offsets[row + 1] - start
        digest = digest_of_words(time, words, start, length)
        at = (digest >> np.uint64(20)) & mask
        slot = np.int64(table[at])
        while slot > 0:
            if entries[slot] == digest and lengths[slot] == length and entry_times[slot] == time:
                if differing_words(arena, starts[slot], words, start, length) == 0:
                    break
            at = (at + ONE) & mask
            slot = np.int64(table[at])
        if slot == 0:
            slot = _enter(
                at, digest, time, length, table, arena, entries, starts, lengths, entry_times, free, fresh, counters
            )
            if slot < 0:
                return row
            for word in range(length):
                arena[starts[slot] + word] = words[start + word]
            buckets[slot] = _bucket(slot, starts, lengths, arena)
        slots[row] = slot
    return rows


@compiled
def insert_text(
    first: int,
    text_starts: int,
    data: int,
    tag: np.uint64,
    validity: int,
    bit: int,
    times: Any,
    table: Any,
    arena: Words,
    entries: Any,
    starts: Any,
    lengths: Any,
    entry_times: Any,
    buckets: Any,
    free: Any,
    slots: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """The same for one column of texts, read where it lies. A slot below -1 says at which place the search ended."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    rows = slots.shape[0]
    for row in range(first, rows):
        time = times[row] if timed else np.int64(0)
        if slots[row] >= 0:
            continue
        if time <= BROKEN:
            slots[row] = -1
            continue
        address = np.int64(data)
        size = np.int64(0)
        header = np.uint64(0)
        if is_valid(validity, bit + row):
            start = np.int64(load_offset(text_starts + 4 * row))
            size = np.int64(load_offset(text_starts + 4 * row + 4)) - start
            address += start
            header = tag | np.uint64(size)
        digest = digest_of_text(time, header, address, size)
        ended = -2 - slots[row]
        at = np.uint64(ended) if ended >= 0 else (digest >> np.uint64(20)) & mask
        slot = np.int64(table[at])
        while slot > 0:
            if entries[slot] == digest and entry_times[slot] == time:
                if differing_text(arena, starts[slot], header, address, size) == 0:
                    break
            at = (at + ONE) & mask
            slot = np.int64(table[at])
        if slot == 0:
            length = 1 + ((size + 7) >> 3)
            slot = _enter(
                at, digest, time, length, table, arena, entries, starts, lengths, entry_times, free, fresh, counters
            )
            if slot < 0:
                return row
            begin = starts[slot]
            arena[begin] = header
            for word in range(size >> 3):
                arena[begin + 1 + word] = load_word(address + 8 * word)
            if size & 7:
                arena[begin + length - 1] = tail_word(address, size)
            buckets[slot] = _bucket(slot, starts, lengths, arena)
        slots[row] = slot
    return rows


@compiled
def move_entries(slots: Any, table: Any, entries: Any, waiting: Any) -> None:
    """Enter those of the slots that still wait for it into a new table."""
    mask = np.uint64(table.shape[0] - 1)
    for position in range(slots.shape[0]):
        slot = slots[position]
        if waiting[slot]:
            waiting[slot] = False
            at = (entries[slot] >> np.uint64(20)) & mask
            while table[at] > 0:
                at = (at + np.uint64(1)) & mask
            table[at] = slot


@compiled
def remove(slots: Any, table: Any, entries: Any, waiting: Any, lengths: Any, free: Any, counters: Any) -> None:
    mask = np.uint64(table.shape[0] - 1)
    for position in range(slots.shape[0]):
        slot = slots[position]
        free[counters[FREE]] = slot
        counters[FREE] += 1
        counters[LIVE] -= 1
        counters[GARBAGE] += lengths[slot]
        if waiting[slot]:
            # Only the table that is being left has it.
            waiting[slot] = False
            continue
        hole = (entries[slot] >> np.uint64(20)) & mask
        while table[hole] != slot:
            hole = (hole + np.uint64(1)) & mask
        probe = hole
        while True:
            probe = (probe + np.uint64(1)) & mask
            other = table[probe]
            if other == 0:
                break
            home = (entries[other] >> np.uint64(20)) & mask
            # Move it back unless its home lies cyclically in (hole, probe].
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                table[hole] = other
                hole = probe
        table[hole] = 0


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
