"""Compiled loops of the key index: an open-addressing table from (key words, time) to a slot.

Keys are compared word by word, never trusted to a hash. Slots are stable for the life of an entry, so accumulators
are plain arrays by slot. Removing closes the gap by shifting back (no tombstones): a table whose windows come and go
does not slow down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.kernels.lookup import BLOCK, HALF, ONE, SLOT, digest_of_text, first_digest, mark_of, stirred, text_at
from operators.kernels.windows import BROKEN
from seep.model.hashing import Words, compiled, load_word, tail_word, xxh64
from seep.model.keyspace import BUCKET_SHIFT

HIGH_SLOT, FREE, ARENA, FRESH, LIVE, GARBAGE = range(6)
"""Positions in the array of counters."""
_TIMES, _GROUPS = 32, 64
"""Entries of fewer windows than this are kept apart; room for that, sparsely filled."""


@compiled
def missing_rows(slots: Any, times: Any) -> Any:
    """The rows that have no slot and should get one, those of one time side by side: entries of one window are removed
    together, so they should lie together, now and in the gaps that they leave. (Of very many times, as they come.)"""
    timed = times.shape[0] > 0
    rows, groups = np.empty(slots.shape[0], np.int64), np.empty(slots.shape[0], np.uint8)
    known, ends = np.full(_GROUPS, BROKEN, np.int64), np.zeros(_GROUPS + 1, np.int64)
    count, kinds = 0, 0
    for row in range(slots.shape[0]):
        if slots[row] >= 0:
            continue
        time = times[row] if timed else np.int64(0)
        if time <= BROKEN:
            slots[row] = -1
            continue
        rows[count] = row
        if timed and kinds < _TIMES:
            group = first_digest(time) >> np.uint64(58)
            while known[group] != time and known[group] != BROKEN:
                group = (group + ONE) & np.uint64(_GROUPS - 1)
            kinds += known[group] == BROKEN
            known[group] = time
            groups[count] = group
            ends[group + ONE] += 1
        count += 1
    if kinds < 2 or kinds == _TIMES:
        return rows[:count]
    for before in range(_GROUPS):
        ends[before + 1] += ends[before]
    grouped = np.empty(count, np.int64)
    for position in range(count):
        grouped[ends[groups[position]]] = rows[position]
        ends[groups[position]] += 1
    return grouped


@compiled
def insert(
    first: int,
    rows: Any,
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
    """Give each of these ``rows`` its slot, from the ``first`` of them on.

    Answers at which there was no room (or the end). A key may be missing in several rows: only the first of them enters
    it. A slot that has come free brings the words of its last key, and a key of the same length takes their place.
    Written out, not put together from functions: a call for each key, with all these arrays, took more than twice as
    long."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    high_slot, unused, used = counters[HIGH_SLOT], counters[FREE], counters[ARENA]
    made = counters[FRESH]
    position = np.int64(first)
    while position < rows.shape[0]:
        row = rows[position]
        time = times[row] if timed else np.int64(0)
        start = np.uint64(offsets[row])
        length = np.uint64(offsets[row + 1]) - start
        digest = first_digest(time)
        for word in range(length):
            digest = stirred(digest, words[start + word])
        mark = mark_of(digest)
        at = mark & mask
        place = table[at]
        while place > 0:
            known = place & SLOT
            same = place >> HALF == mark and np.uint64(lengths[known]) == length
            if same and (not timed or entry_times[known] == time):
                begin = np.uint64(starts[known])
                different = np.uint64(0)
                for word in range(length):
                    different |= arena[begin + word] ^ words[start + word]
                if different == 0:
                    break
            at = (at + ONE) & mask
            place = table[at]
        slot = np.int64(place & SLOT)
        if place == 0:
            slot = np.int64(free[unused - 1]) if unused > 0 else high_slot
            fits = unused > 0 and np.int64(lengths[slot]) == np.int64(length)
            if slot == entries.shape[0] or not (fits or used + np.int64(length) <= arena.shape[0]):
                break
            if unused > 0:
                unused -= 1
            else:
                high_slot += 1
            known = np.uint64(slot)
            table[at] = mark << HALF | known
            entries[known] = mark
            if timed:
                entry_times[known] = time
            if fits:
                counters[GARBAGE] -= np.int64(length)
            else:
                lengths[known] = length
                starts[known] = used
                used += np.int64(length)
            begin = np.uint64(starts[known])
            for word in range(length):
                arena[begin + word] = words[start + word]
            fresh[made] = slot
            made += 1
        slots[row] = slot
        position += 1
    counters[LIVE] += made - counters[FRESH]
    counters[HIGH_SLOT], counters[FREE], counters[ARENA], counters[FRESH] = high_slot, unused, used, made
    return position


@compiled
def insert_text(
    first: int,
    rows: Any,
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
    high_slot, unused, used = counters[HIGH_SLOT], counters[FREE], counters[ARENA]
    made = counters[FRESH]
    position = np.int64(first)
    while position < rows.shape[0]:
        row = rows[position]
        time = times[row] if timed else np.int64(0)
        address, size, header = text_at(text_starts, data, tag, validity, bit, row)
        digest = digest_of_text(time, header, address, size)
        ended = -2 - slots[row]
        mark = mark_of(digest)
        at = np.uint64(ended) if ended >= 0 else mark & mask
        whole = np.uint64(size >> 3)
        tail = tail_word(address, size) if size & 7 else np.uint64(0)
        place = table[at]
        while place > 0:
            known = place & SLOT
            if place >> HALF == mark and (not timed or entry_times[known] == time):
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
            place = table[at]
        slot = np.int64(place & SLOT)
        if place == 0:
            length = 1 + ((size + 7) >> 3)
            slot = np.int64(free[unused - 1]) if unused > 0 else high_slot
            fits = unused > 0 and np.int64(lengths[slot]) == length
            if slot == entries.shape[0] or not (fits or used + length <= arena.shape[0]):
                break
            if unused > 0:
                unused -= 1
            else:
                high_slot += 1
            known = np.uint64(slot)
            table[at] = mark << HALF | known
            entries[known] = mark
            if timed:
                entry_times[known] = time
            if fits:
                counters[GARBAGE] -= length
            else:
                lengths[known] = length
                starts[known] = used
                used += length
            begin = np.uint64(starts[known])
            arena[begin] = header
            for word in range(whole):
                arena[begin + ONE + word] = load_word(address + 8 * np.int64(word))
            if size & 7:
                arena[begin + ONE + whole] = tail
            fresh[made] = slot
            made += 1
        slots[row] = slot
        position += 1
    counters[LIVE] += made - counters[FRESH]
    counters[HIGH_SLOT], counters[FREE], counters[ARENA], counters[FRESH] = high_slot, unused, used, made
    return position


@compiled
def place(
    fresh: Any, starts: Any, lengths: Any, arena: Words, buckets: Any, live: Any, saved: Any, stamps: Any
) -> None:
    """New entries live in their buckets; nobody has saved or met them."""
    for position in range(fresh.shape[0]):
        slot = np.uint64(fresh[position])
        live[slot], saved[slot], stamps[slot] = True, False, 0
        buckets[slot] = xxh64(arena, starts[slot], starts[slot] + lengths[slot]) >> BUCKET_SHIFT


@compiled
def move_entries(slots: Any, table: Any, entries: Any, waiting: Any) -> None:
    """Enter those of the slots that still wait for it into a new table."""
    mask = np.uint64(table.shape[0] - 1)
    for position in range(slots.shape[0]):
        slot = slots[position]
        if waiting[slot]:
            waiting[slot] = False
            mark = np.uint64(entries[slot])
            at = mark & mask
            while table[at] > 0:
                at = (at + ONE) & mask
            table[at] = mark << HALF | np.uint64(slot)


@compiled
def remove(slots: Any, table: Any, entries: Any, waiting: Any, lengths: Any, free: Any, counters: Any) -> None:
    """Block by block, first a look at all places where they should be: the processor then waits for many at once."""
    mask = np.uint64(table.shape[0] - 1)
    unused, garbage, looks = counters[FREE], counters[GARBAGE], np.empty(BLOCK, np.uint64)
    for low in range(0, slots.shape[0], BLOCK):
        high = min(low + BLOCK, slots.shape[0])
        for position in range(low, high):
            looks[np.uint64(position - low)] = table[np.uint64(entries[np.uint64(slots[position])]) & mask]
        for position in range(low, high):
            slot = np.uint64(slots[position])
            free[unused] = slot
            unused += 1
            garbage += lengths[slot]
            if waiting[slot]:
                # Only the table that is being left has it.
                waiting[slot] = False
                continue
            mark = np.uint64(entries[slot])
            hole, wanted = mark & mask, mark << HALF | slot
            while table[hole] != wanted:
                hole = (hole + ONE) & mask
            probe = hole
            while True:
                probe = (probe + ONE) & mask
                other = table[probe]
                if other == 0:
                    break
                home = (other >> HALF) & mask
                # Move it back unless its home lies cyclically in (hole, probe].
                if ((probe - home) & mask) >= ((probe - hole) & mask):
                    table[hole] = other
                    hole = probe
            table[hole] = 0
    counters[FREE], counters[GARBAGE] = unused, garbage
    counters[LIVE] -= slots.shape[0]


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
