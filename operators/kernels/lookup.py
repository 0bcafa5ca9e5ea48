"""Compiled loops that look for keys in the index without ever making one: the hot path, since most rows have a key that
is known.

They are apart from `operators.kernels.index`, which enters the keys that were missing: with that code in the same loop
the compiler has no registers left for this one, and it runs at half the speed. For the same reason they are written
out, not put together from functions. Indices are unsigned: of a signed one the compiler must ask each time whether it
is negative. Words are compared without a branch for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import PRIME_1, PRIME_3, Words, compiled, is_valid, load_offset, load_word, tail_word

ONE = np.uint64(1)
BLOCK = 64
SLOT = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
"""A place of the table holds the slot of an entry in its lower half, in its upper one a part of the entry's digest that
says also where it should be: keys that are not the one looked for are passed by without a look at them, which would be
one more place of memory. A free place is 0, which is nobody's slot: fresh memory is an empty table."""


@compiled
def stirred(digest: np.uint64, word: np.uint64) -> np.uint64:
    """One more word in an entry's digest. Only this table ever sees it, so it need not be the stable hash, which
    costs several times as much and is wanted once for a new entry."""
    digest = (digest ^ word) * PRIME_1
    return digest ^ (digest >> np.uint64(32))


@compiled
def mark_of(digest: np.uint64) -> np.uint64:
    """What the table holds of a digest; its last bits are the entry's place."""
    return (digest >> np.uint64(20)) & SLOT


@compiled
def first_digest(time: np.int64) -> np.uint64:
    return np.uint64(time) * PRIME_3


@compiled
def digest_of_text(time: Any, header: np.uint64, address: Any, size: Any) -> np.uint64:
    digest = stirred(first_digest(time), header)
    for word in range(size >> 3):
        digest = stirred(digest, load_word(address + 8 * word))
    if size & 7:
        digest = stirred(digest, tail_word(address, size))
    return digest


@compiled
def differing_words(left: Words, left_at: Any, right: Words, right_at: Any, length: Any) -> Any:
    """Not zero when they differ."""
    one, other = np.uint64(left_at), np.uint64(right_at)
    different = np.uint64(0)
    for word in range(np.uint64(length)):
        different |= left[one + word] ^ right[other + word]
    return different


@compiled
def look_up(
    offsets: Any,
    words: Words,
    times: Any,
    table: Any,
    arena: Words,
    starts: Any,
    lengths: Any,
    entry_times: Any,
    slots: Any,
) -> Any:
    """The slot of each row, or -1; answers how many have none."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    missing = 0
    for row in range(np.uint64(slots.shape[0])):
        time = times[row] if timed else np.int64(0)
        start = np.uint64(offsets[row])
        length = np.uint64(offsets[row + ONE]) - start
        digest = first_digest(time)
        for word in range(length):
            digest = stirred(digest, words[start + word])
        mark = mark_of(digest)
        at = mark & mask
        place = table[at]
        while place > 0:
            known = place & SLOT
            if place >> HALF == mark and np.uint64(lengths[known]) == length:
                begin = np.uint64(starts[known])
                different = np.uint64(entry_times[known] ^ time) if timed else np.uint64(0)
                for word in range(length):
                    different |= arena[begin + word] ^ words[start + word]
                if different == 0:
                    break
            at = (at + ONE) & mask
            place = table[at]
        slots[row] = np.int64(place & SLOT) - (place == 0)
        missing += place == 0
    return missing


@compiled
def look_up_text(
    text_starts: int,
    data: int,
    tag: np.uint64,
    validity: int,
    bit: int,
    times: Any,
    table: Any,
    arena: Words,
    starts: Any,
    entry_times: Any,
    slots: Any,
) -> Any:
    """The same for the commonest key, one column of texts, read where it lies."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    missing = 0
    for row in range(np.uint64(slots.shape[0])):
        time = times[row] if timed else np.int64(0)
        position = np.int64(row)
        start = np.int64(load_offset(text_starts + 4 * position))
        size = np.int64(load_offset(text_starts + 4 * position + 4)) - start
        address = data + start
        header = tag | np.uint64(size)
        if not is_valid(validity, int(bit + position)):
            size = np.int64(0)
            header = np.uint64(0)
        whole = np.uint64(size >> 3)
        digest = stirred(first_digest(time), header)
        for word in range(whole):
            digest = stirred(digest, load_word(address + 8 * np.int64(word)))
        tail = np.uint64(0)
        if size & 7:
            tail = tail_word(address, size)
            digest = stirred(digest, tail)
        mark = mark_of(digest)
        at = mark & mask
        place = table[at]
        while place > 0:
            known = place & SLOT
            if place >> HALF == mark:
                begin = np.uint64(starts[known])
                # The header says the length: nothing is read behind a shorter key.
                if arena[begin] == header:
                    different = np.uint64(entry_times[known] ^ time) if timed else np.uint64(0)
                    for word in range(whole):
                        different |= arena[begin + ONE + word] ^ load_word(address + 8 * np.int64(word))
                    if size & 7:
                        different |= arena[begin + ONE + whole] ^ tail
                    if different == 0:
                        break
            at = (at + ONE) & mask
            place = table[at]
        slots[row] = np.int64(place & SLOT) - (place == 0)
        missing += place == 0
    return missing


@compiled
def look_up_text_far(
    text_starts: int,
    data: int,
    tag: np.uint64,
    validity: int,
    bit: int,
    times: Any,
    table: Any,
    arena: Words,
    starts: Any,
    entry_times: Any,
    slots: Any,
) -> Any:
    """The same in an index too large for the processor's cache: block by block first all digests and the first places
    with their marks, then where the keys of these begin, then the keys, so that the processor waits for many places of
    memory at once. Rows without a slot get -2 less the place at which their search ended."""
    mask = np.uint64(table.shape[0] - 1)
    timed = times.shape[0] > 0
    marks, places, begins = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    missing, rows = 0, slots.shape[0]
    for low in range(0, rows, BLOCK):
        high = min(low + BLOCK, rows)
        for row in range(low, high):
            address, size, header = text_at(text_starts, data, tag, validity, bit, row)
            digest = stirred(first_digest(times[row] if timed else np.int64(0)), header)
            for word in range(np.uint64(size >> 3)):
                digest = stirred(digest, load_word(address + 8 * np.int64(word)))
            if size & 7:
                digest = stirred(digest, tail_word(address, size))
            marks[np.uint64(row - low)] = mark_of(digest)
        for row in range(high - low):
            mark = marks[np.uint64(row)]
            at = mark & mask
            place = table[at]
            while place > 0 and place >> HALF != mark:
                at = (at + ONE) & mask
                place = table[at]
            places[np.uint64(row)] = at
            slots[np.uint64(low + row)] = np.int64(place & SLOT)
        for row in range(low, high):
            begins[np.uint64(row - low)] = starts[np.uint64(slots[np.uint64(row)])]
        for row in range(low, high):
            slot, at = np.uint64(slots[np.uint64(row)]), places[np.uint64(row - low)]
            if slot > 0:
                address, size, header = text_at(text_starts, data, tag, validity, bit, row)
                mark, begin, whole = marks[np.uint64(row - low)], begins[np.uint64(row - low)], np.uint64(size >> 3)
                while slot > 0:
                    if arena[begin] == header and (not timed or entry_times[slot] == times[row]):
                        different = np.uint64(0)
                        for word in range(whole):
                            different |= arena[begin + ONE + word] ^ load_word(address + 8 * np.int64(word))
                        if size & 7:
                            different |= arena[begin + ONE + whole] ^ tail_word(address, size)
                        if different == 0:
                            break
                    at = (at + ONE) & mask
                    while table[at] > 0 and table[at] >> HALF != mark:
                        at = (at + ONE) & mask
                    slot = table[at] & SLOT
                    begin = np.uint64(starts[slot])
            slots[np.uint64(row)] = np.int64(slot) if slot > 0 else -2 - np.int64(at)
            missing += slot == 0
    return missing


@compiled
def text_at(text_starts: int, data: int, tag: np.uint64, validity: int, bit: int, row: Any) -> Any:
    """Where a row's text lies, its size, and the header of its key; null has no text, and 0 for a header."""
    start = np.int64(load_offset(text_starts + 4 * row))
    size = np.int64(load_offset(text_starts + 4 * row + 4)) - start
    header = tag | np.uint64(size)
    if not is_valid(validity, int(bit + row)):
        size = np.int64(0)
        header = np.uint64(0)
    return data + start, size, header


@compiled
def touch(slots: Any, stamps: Any, stamp: int, touched: Any, count: Any) -> Any:
    """Each slot that this search has not met yet, in order of first appearance, behind the first ``count`` of
    ``touched``; answers how many there are then."""
    for row in range(np.uint64(slots.shape[0])):
        slot = slots[row]
        if slot >= 0 and stamps[np.uint64(slot)] != stamp:
            stamps[np.uint64(slot)] = stamp
            touched[count] = slot
            count += 1
    return count
