"""Compiled loops under the variance: floats by Welford's method, integers by exact sums of values and squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from seep.model.hashing import compiled, is_valid, load_float, load_signed, load_word

_SIGN = np.uint64(1 << 63)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


@compiled
def spread_floats(slots: Any, values: int, validity: int, bit: int, mean: Any, squares: Any, seen: Any) -> None:
    """Welford: the mean so far, and the sum of squared distances from it."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            value = load_float(values + 8 * row)
            seen[slot] += 1
            distance = value - mean[slot]
            mean[slot] += distance / seen[slot]
            squares[slot] += distance * (value - mean[slot])


@compiled
def merge_float_spreads(
    slots: Any, counts: int, means: int, all_squares: int, mean: Any, squares: Any, seen: Any
) -> None:
    """Chan, Golub and LeVeque: two sets as if they had been one."""
    for row in range(slots.shape[0]):
        slot, count = slots[row], load_signed(counts + 8 * row)
        if slot >= 0 and count > 0:
            if seen[slot] == 0:
                # By the formula below, distances that overflow would make it NaN.
                mean[slot], squares[slot] = load_float(means + 8 * row), load_float(all_squares + 8 * row)
                seen[slot] = count
                continue
            both = seen[slot] + count
            distance = load_float(means + 8 * row) - mean[slot]
            squares[slot] += load_float(all_squares + 8 * row) + distance * distance * (seen[slot] * (count / both))
            mean[slot] += distance * (count / both)
            seen[slot] = both


@compiled
def square_of(word: Any) -> Any:
    """The 128-bit square of a 64-bit number: low word, high word."""
    lower, upper = word & _LOW_HALF, word >> _HALF
    cross = lower * upper
    low = lower * lower
    high = upper * upper + (cross >> np.uint64(31))
    shifted = cross << np.uint64(33)
    total = low + shifted
    if total < low:
        high += np.uint64(1)
    return total, high


@compiled
def square_integers(
    slots: Any, values: int, validity: int, bit: int, unsigned: bool, back: bool, low: Any, middle: Any, top: Any
) -> None:
    """Add each value's square, or take it back, in 192 bits."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            word = load_word(values + 8 * row)
            if not unsigned and word >= _SIGN:
                word = ~word + np.uint64(1)
            first, second = square_of(word)
            if back:
                borrow = np.uint64(1 if low[slot] < first else 0)
                under = np.int64(1 if middle[slot] < second else 0)
                rest = middle[slot] - second
                under += np.int64(1 if rest < borrow else 0)
                low[slot] -= first
                middle[slot] = rest - borrow
                top[slot] -= under
            else:
                low[slot] += first
                carry = np.uint64(1 if low[slot] < first else 0)
                total = middle[slot] + second
                over = np.int64(1 if total < second else 0)
                total += carry
                over += np.int64(1 if total < carry else 0)
                middle[slot] = total
                top[slot] += over


@compiled
def merge_squares(slots: Any, lows: int, middles: int, tops: int, low: Any, middle: Any, top: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            first, second = load_word(lows + 8 * row), load_word(middles + 8 * row)
            low[slot] += first
            carry = np.uint64(1 if low[slot] < first else 0)
            total = middle[slot] + second
            over = np.int64(1 if total < second else 0)
            total += carry
            over += np.int64(1 if total < carry else 0)
            middle[slot] = total
            top[slot] += load_signed(tops + 8 * row) + over
