"""Compiled loops of the key index: an open-addressing table from (key words, time) to a slot.

Keys are compared word by word, never trusted to a hash. Slots are stable for the life of an entry, so accumulators
are plain arrays by slot. Removing closes the gap by shifting back (no tombstones): a table whose windows come and go
does not slow down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.lookup import ONE, digest_of_text, first_digest, stirred, text_at
from operators.kernels.windows import BROKEN
from seep.model.hashing import Words, compiled, load_word, tail_word, xxh64
from seep.model.keyspace import BUCKET_SHIFT

HIGH_SLOT, FREE, ARENA, FRESH, LIVE, GARBAGE = range(6)
"""Positions in the array of counters."""


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
    free: Any,
    slots: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """Give each row that has none its slot (but for the late and the broken), from row ``first`` on.

    Answers the row at which there was no room (or the end). A key may be missing in several rows: only the first of
    them enters it. Written out, not put together from functions: a call for each key, with all these arrays, took more
    than twice as long."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    rows = slots.shape[0]
    high_slot, unused, used = counters[HIGH_SLOT], counters[FREE], counters[ARENA]
    made = counters[FRESH]
    row = np.int64(first)
    while row < rows:
        time = times[row] if timed else np.int64(0)
        if slots[row] >= 0 or time <= BROKEN:
            row += 1
            continue
        start = np.uint64(offsets[row])
        length = np.uint64(offsets[row + 1]) - start
        digest = first_digest(time)
        for word in range(length):
            digest = stirred(digest, words[start + word])
        at = (digest >> np.uint64(20)) & mask
        slot = np.int64(table[at])
        while slot > 0:
            known = np.uint64(slot)
            same = entries[known] == digest and np.uint64(lengths[known]) == length
            if same and (not timed or entry_times[known] == time):
                begin = np.uint64(starts[known])
                different = np.uint64(0)
                for word in range(length):
                    different |= arena[begin + word] ^ words[start + word]
                if different == 0:
                    break
            at = (at + ONE) & mask
            slot = np.int64(table[at])
        if slot == 0:
            if (unused == 0 and high_slot == entries.shape[0]) or used + np.int64(length) > arena.shape[0]:
                break
            if unused > 0:
                unused -= 1
                slot = free[unused]
            else:
                slot = high_slot
                high_slot += 1
            table[at] = slot
            known = np.uint64(slot)
            entries[known] = digest
            if timed:
                entry_times[known] = time
            lengths[known] = length
            starts[known] = used
            begin = np.uint64(used)
            for word in range(length):
                arena[begin + word] = words[start + word]
            used += np.int64(length)
            fresh[made] = slot
            made += 1
        slots[row] = slot
        row += 1
    counters[LIVE] += made - counters[FRESH]
    counters[HIGH_SLOT], counters[FREE], counters[ARENA], counters[FRESH] = high_slot, unused, used, made
    return row


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
    free: Any,
    slots: Any,
    fresh: Any,
    counters: Any,
) -> Any:
    """The same for one column of texts, read where it lies. A slot below -1 says at which place the search ended."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    rows = slots.shape[0]
    high_slot, unused, used = counters[HIGH_SLOT], counters[FREE], counters[ARENA]
    made = counters[FRESH]
    row = np.int64(first)
    while row < rows:
        if slots[row] >= 0:
            row += 1
            continue
        time = times[row] if timed else np.int64(0)
        if time <= BROKEN:
            slots[row] = -1
            row += 1
            continue
        address, size, header = text_at(text_starts, data, tag, validity, bit, row)
        digest = digest_of_text(time, header, address, size)
        ended = -2 - slots[row]
        at = np.uint64(ended) if ended >= 0 else (digest >> np.uint64(20)) & mask
        whole = np.uint64(size >> 3)
        tail = tail_word(address, size) if size & 7 else np.uint64(0)
        slot = np.int64(table[at])
        while slot > 0:
            known = np.uint64(slot)
            if entries[known] == digest and (not timed or entry_times[known] == time):
                begin = np.uint64(starts[known])
                # The header says the length: nothing is read behind a shorter key.
                if arena[begin] == header:
                    different = np.uint64(0)
                    for word in range(whole):
                        different |= arena[begin + ONE + word] ^ load_word(address + 8 * np.int64(word))
                    if size & 7:
                        different |= arena[begin + ONE + whole] ^ tail
                    if different == 0:
                        break
            at = (at + ONE) & mask
            slot = np.int64(table[at])
        if slot == 0:
            length = 1 + ((size + 7) >> 3)
            if (unused == 0 and high_slot == entries.shape[0]) or used + length > arena.shape[0]:
                break
            if unused > 0:
                unused -= 1
                slot = free[unused]
            else:
                slot = high_slot
                high_slot += 1
            table[at] = slot
            known = np.uint64(slot)
            entries[known] = digest
            if timed:
                entry_times[known] = time
            lengths[known] = length
            starts[known] = used
            begin = np.uint64(used)
            arena[begin] = header
            for word in range(whole):
                arena[begin + ONE + word] = load_word(address + 8 * np.int64(word))
            if size & 7:
                arena[begin + ONE + whole] = tail
            used += length
            fresh[made] = slot
            made += 1
        slots[row] = slot
        row += 1
    counters[LIVE] += made - counters[FRESH]
    counters[HIGH_SLOT], counters[FREE], counters[ARENA], counters[FRESH] = high_slot, unused, used, made
    return row


@compiled
def place(fresh: Any, starts: Any, lengths: Any, arena: Words, buckets: Any) -> None:
    """The buckets of new entries."""
    for position in range(fresh.shape[0]):
        slot = np.uint64(fresh[position])
        buckets[slot] = xxh64(arena, starts[slot], starts[slot] + lengths[slot]) >> BUCKET_SHIFT


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
    """The identity of each slot as words, one after the other: its key, then (windows) its time.

    Where keys begin and how long they are is looked up for all of them first: the processor then waits for many places
    of memory at once, as it does in the copying of words whose places are known."""
    rows, extra = slots.shape[0], 1 if timed else 0
    begins, sizes = np.empty(rows, np.uint32), np.empty(rows, np.int32)
    for position in range(rows):
        sizes[position] = lengths[np.uint64(slots[position])]
    for position in range(rows):
        begins[position] = starts[np.uint64(slots[position])]
    total = 0
    for position in range(rows):
        total += sizes[position] + extra
        offsets[position + 1] = total * 8
    result = np.empty(total, np.uint64)
    at = np.uint64(0)
    for position in range(rows):
        begin = np.uint64(begins[position])
        for word in range(np.uint64(sizes[position])):
            result[at] = arena[begin + word]
            at += ONE
        if timed:
            result[at] = np.uint64(times[np.uint64(slots[position])])
            at += ONE
    return result
