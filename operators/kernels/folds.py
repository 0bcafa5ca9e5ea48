"""Compiled loops that fold a column into per-key state, row by row in input order.

Row order matters for floats: a key's rows come in one final order, so its total is the same however the flow is
partitioned. Each loop takes the slot of each row (-1: no entry), the column's address and validity, and the state
arrays by slot; ``seen`` counts the values that were not null.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled, is_valid, load_byte, load_float, load_offset, load_signed, load_word

_SIGN = np.uint64(1 << 63)


@compiled
def count_rows(slots: Any, validity: int, bit: int, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            seen[slot] += 1


@compiled
def total_integers(
    slots: Any, values: int, validity: int, bit: int, unsigned: bool, low: Any, high: Any, seen: Any
) -> None:
    """Exact in 128 bits: two's complement, the low word unsigned."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 8 * row)
            total = low[slot] + word
            if total < word:
                high[slot] += 1
            if not unsigned and word >= _SIGN:
                high[slot] -= 1
            low[slot] = total
            seen[slot] += 1


@compiled
def discount_rows(slots: Any, validity: int, bit: int, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            seen[slot] -= 1


@compiled
def discount_integers(
    slots: Any, values: int, validity: int, bit: int, unsigned: bool, low: Any, high: Any, seen: Any
) -> None:
    """Undo `total_integers`."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 8 * row)
            if low[slot] < word:
                high[slot] -= 1
            if not unsigned and word >= _SIGN:
                high[slot] += 1
            low[slot] -= word
            seen[slot] -= 1


@compiled
def total_floats(slots: Any, values: int, validity: int, bit: int, total: Any, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            total[slot] += load_float(values + 8 * row)
            seen[slot] += 1


@compiled
def total_decimals(slots: Any, values: int, validity: int, bit: int, low: Any, high: Any, top: Any, seen: Any) -> None:
    """As for integers, in 192 bits: a few values of 38 digits leave 128, and the next ones may bring them back."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 16 * row)
            upper = load_word(values + 16 * row + 8)
            total = low[slot] + word
            carry = np.uint64(1 if total < word else 0)
            middle = np.uint64(high[slot]) + upper
            over = np.int64(1 if middle < upper else 0)
            middle += carry
            over += np.int64(1 if middle < carry else 0)
            low[slot] = total
            high[slot] = np.int64(middle)
            top[slot] += over - np.int64(1 if upper >= _SIGN else 0)
            seen[slot] += 1


@compiled
def discount_decimals(
    slots: Any, values: int, validity: int, bit: int, low: Any, high: Any, top: Any, seen: Any
) -> None:
    """Undo `total_decimals`."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 16 * row)
            upper = load_word(values + 16 * row + 8)
            borrow = np.uint64(1 if low[slot] < word else 0)
            middle = np.uint64(high[slot])
            under = np.int64(1 if middle < upper else 0)
            middle -= upper
            under += np.int64(1 if middle < borrow else 0)
            middle -= borrow
            low[slot] -= word
            high[slot] = np.int64(middle)
            top[slot] -= under - np.int64(1 if upper >= _SIGN else 0)
            seen[slot] -= 1


@compiled
def extreme_integers(
    slots: Any, values: int, validity: int, bit: int, unsigned: bool, greatest: bool, best: Any, seen: Any
) -> None:
    flip = np.int64(-(2**63)) if unsigned else np.int64(0)
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            value = load_signed(values + 8 * row)
            ordered, current = value ^ flip, best[slot] ^ flip
            if seen[slot] == 0 or (ordered > current if greatest else ordered < current):
                best[slot] = value
            seen[slot] += 1


@compiled
def is_better_float(value: Any, current: Any, greatest: bool) -> Any:
    """NaN is greater than every number."""
    if greatest:
        return value > current or (np.isnan(value) and not np.isnan(current))
    return value < current or (np.isnan(current) and not np.isnan(value))


@compiled
def extreme_floats(slots: Any, values: int, validity: int, bit: int, greatest: bool, best: Any, seen: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            value, current = load_float(values + 8 * row), best[slot]
            if seen[slot] == 0 or is_better_float(value, current, greatest):
                best[slot] = value
            seen[slot] += 1


@compiled
def extreme_decimals(
    slots: Any, values: int, validity: int, bit: int, greatest: bool, low: Any, high: Any, seen: Any
) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 16 * row)
            upper = load_signed(values + 16 * row + 8)
            less = upper < high[slot] or (upper == high[slot] and word < low[slot])
            equal = upper == high[slot] and word == low[slot]
            if seen[slot] == 0 or (not less and not equal if greatest else less):
                low[slot] = word
                high[slot] = upper
            seen[slot] += 1


@compiled
def _text_before(data: int, left: Any, left_stop: Any, right: Any, right_stop: Any) -> Any:
    while left < left_stop and right < right_stop:
        one, other = load_byte(data + left), load_byte(data + right)
        if one != other:
            return one < other
        left += 1
        right += 1
    return left == left_stop and right < right_stop


@compiled
def extreme_texts(
    slots: Any, starts: int, data: int, validity: int, bit: int, greatest: bool, winner: Any, seen: Any
) -> None:
    """The row of this batch with the least or greatest text of each slot, in ``winner`` (-1: none so far)."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            seen[slot] += 1
            best = winner[slot]
            if best < 0:
                winner[slot] = row
                continue
            start, stop = np.int64(load_offset(starts + 4 * row)), np.int64(load_offset(starts + 4 * row + 4))
            best_start = np.int64(load_offset(starts + 4 * best))
            best_stop = np.int64(load_offset(starts + 4 * best + 4))
            if greatest:
                better = _text_before(data, best_start, best_stop, start, stop)
            else:
                better = _text_before(data, start, stop, best_start, best_stop)
            if better:
                winner[slot] = row


@compiled
def extreme_times(slots: Any, times: int, last: bool, best: Any, seen: Any, winner: Any) -> None:
    """The row of each slot with the least time (of equal ones the first) or the greatest (the last), in ``winner``, if
    it beats the one before this batch. Address 0: all times are equal."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            time = load_signed(times + 8 * row) if times else np.int64(0)
            if seen[slot] == 0 or (time >= best[slot] if last else time < best[slot]):
                best[slot] = time
                winner[slot] = row
            seen[slot] = 1


@compiled
def last_rows(slots: Any, last: Any) -> None:
    """The last row of each slot."""
    for row in range(slots.shape[0]):
        if slots[row] >= 0:
            last[slots[row]] = row
