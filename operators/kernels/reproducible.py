"""Compiled loops for sums of floats that do not depend on the order in which they are made.

A sum is kept as *digits* of 32 bits, whole numbers in words of 64, so that adding rounds nothing. A float is cut at
fixed places, and only the highest digits are kept, counted from the highest that any value had: which ones these are in
the end does not depend on the order, and neither does what has been added to them. Up to 2**31 values fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from operators.kernels.spread import square_of
from seep.model.hashing import compiled, is_valid, load_float, load_signed, load_word

_BIAS = 1088
"""Digit 0 begins at 2**-1088, below the least float; for squares at twice that."""
_LOW = np.uint64(0xFFFFFFFF)
_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN = np.uint64(1 << 52)
_SPECIAL = np.uint64(0x7FF)
_WORDS = 48
"""Room for n times the squares and the square of the sum."""


@compiled
def _raise(digits: Any, tops: Any, slot: Any, top: Any) -> None:
    """Let the highest digit be at least this one; the lowest fall off."""
    moved = top - tops[slot]
    if moved > 0:
        size = digits.shape[1]
        for at in range(size):
            digits[slot, at] = digits[slot, at + moved] if at + moved < size else 0
        tops[slot] = top


@compiled
def _add(digits: Any, tops: Any, slot: Any, low: Any, high: Any, place: Any, negative: Any) -> None:
    """Add a number of 128 bits whose last bit is at this place."""
    first, shift = place >> 5, np.uint64(place & 31)
    zero, half = np.uint64(0), np.uint64(32)
    back = np.uint64(64) - shift
    lower, middle, upper = low << shift, high << shift, zero
    if shift > zero:
        middle |= low >> back
        upper = high >> back
    if upper != zero:
        last = 4
    elif middle != zero:
        last = 3 if middle >> half != zero else 2
    elif lower != zero:
        last = 1 if lower >> half != zero else 0
    else:
        return
    _raise(digits, tops, slot, first + last)
    bottom = tops[slot] - digits.shape[1] + 1
    for number in range(last + 1):
        at = first + number - bottom
        if at >= 0:
            word = lower if number < 2 else (middle if number < 4 else upper)
            digit = np.int64((word >> half if number & 1 else word) & _LOW)
            digits[slot, at] += -digit if negative else digit


@compiled
def _add_word(digits: Any, tops: Any, slot: Any, number: Any, place: Any, negative: Any) -> None:
    """The same for one of at most 64 bits, which three digits hold."""
    first, shift = place >> 5, np.uint64(place & 31)
    lower = number << shift
    upper = np.int64((number >> np.uint64(32)) >> (np.uint64(32) - shift))
    middle = np.int64(lower >> np.uint64(32))
    last = 2 if upper else (1 if middle else 0)
    if first + last > tops[slot]:
        if number == np.uint64(0):
            return
        _raise(digits, tops, slot, first + last)
    at = first - tops[slot] + digits.shape[1] - 1
    sign = np.int64(-1) if negative else np.int64(1)
    if at >= 0:
        digits[slot, at] += sign * np.int64(lower & _LOW)
    if at >= -1 and middle:
        digits[slot, at + 1] += sign * middle
    if at >= -2 and upper:
        digits[slot, at + 2] += sign * upper


@compiled
def _parts(word: Any) -> Any:
    """Of a float's bits: the whole number, the place of its last bit, and its sign. -1: it is not finite."""
    exponent, fraction = (word >> np.uint64(52)) & _SPECIAL, word & _FRACTION
    negative = word >> np.uint64(63) != np.uint64(0)
    if exponent == _SPECIAL:
        return fraction, np.int64(-1), negative
    if exponent == np.uint64(0):
        return fraction, np.int64(_BIAS - 1074), negative
    return fraction | _HIDDEN, np.int64(exponent) + np.int64(_BIAS - 1075), negative


@compiled
def add_floats(
    slots: Any, values: int, validity: int, bit: int, digits: Any, tops: Any, special: Any, seen: Any
) -> None:
    """``special``: the sum of infinities and NaN."""
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            number, place, negative = _parts(load_word(values + 8 * row))
            if place < 0:
                special[slot] += load_float(values + 8 * row)
            else:
                _add_word(digits, tops, slot, number, place, negative)
            seen[slot] += 1


@compiled
def add_squares(slots: Any, values: int, validity: int, bit: int, digits: Any, tops: Any) -> None:
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0 and is_valid(validity, bit + row):
            number, place, _ = _parts(load_word(values + 8 * row))
            if place >= 0:
                low, high = square_of(number)
                _add(digits, tops, slot, low, high, 2 * place, False)


@compiled
def merge_digits(slots: Any, parts: Any, part_tops: int, digits: Any, tops: Any) -> None:
    """``parts``: the digits of others."""
    size = digits.shape[1]
    for row in range(slots.shape[0]):
        slot = slots[row]
        if slot >= 0:
            top = load_signed(part_tops + 8 * row)
            _raise(digits, tops, slot, top)
            for at in range(size):
                place = at + top - tops[slot]
                if place >= 0:
                    digits[slot, place] += parts[row, at]


@compiled
def _carried(words: Any) -> Any:
    """Make each of these digits one of 32 bits, of the number without its sign; is it negative?"""
    carry = np.int64(0)
    for at in range(words.shape[0]):
        value = words[at] + carry
        words[at] = value & np.int64(0xFFFFFFFF)
        carry = value >> np.int64(32)
    if carry >= 0:
        return False
    more = np.int64(1)
    for at in range(words.shape[0]):
        value = (words[at] ^ np.int64(0xFFFFFFFF)) + more
        words[at] = value & np.int64(0xFFFFFFFF)
        more = value >> np.int64(32)
    return True


@compiled
def _rounded(words: Any) -> Any:
    """Of digits that are carried: the nearest number of 53 bits, and the power of two that it is to be times."""
    at = words.shape[0] - 1
    while at > 0 and words[at] == 0:
        at -= 1
    upper = np.uint64(words[at])
    if upper == np.uint64(0):
        return 0.0, 0
    zeros = np.uint64(0)
    while (upper << zeros) >> np.uint64(31) == np.uint64(0):
        zeros += np.uint64(1)
    middle = np.uint64(words[at - 1]) if at > 0 else np.uint64(0)
    lower = np.uint64(words[at - 2]) if at > 1 else np.uint64(0)
    word = (((upper << np.uint64(32)) | middle) << zeros) | ((lower << zeros) >> np.uint64(32))
    rest = ((lower << zeros) & _LOW) != np.uint64(0)
    for below in range(at - 2):
        rest = rest or words[below] != 0
    # Far below what is rounded away: it only tells a half from more than that.
    return np.float64(word | np.uint64(1 if rest else 0)), 32 * (at - 1) - np.int64(zeros)


@compiled
def float_sums(slots: Any, digits: Any, tops: Any, special: Any, results: Any) -> None:
    size = digits.shape[1]
    words = np.zeros(size + 2, np.int64)
    for row in range(slots.shape[0]):
        slot = slots[row]
        if special[slot] != 0.0:
            results[row] = special[slot]
            continue
        words[:size] = digits[slot]
        words[size:] = 0
        negative = _carried(words)
        value, power = _rounded(words)
        total = math.ldexp(value, power + 32 * (tops[slot] - size + 1) - _BIAS)
        results[row] = -total if negative else total


@compiled
def _add_product(words: Any, at: Any, left: Any, right: Any, sign: Any) -> None:
    product = np.uint64(left) * np.uint64(right)
    words[at] += sign * np.int64(product & _LOW)
    words[at + 1] += sign * np.int64(product >> np.uint64(32))


@compiled
def float_variances(
    slots: Any, digits: Any, tops: Any, squares: Any, square_tops: Any, special: Any, seen: Any, results: Any
) -> None:
    """(n Σx² - (Σx)²) / (n (n - 1)), in whole numbers until the last division."""
    size = digits.shape[1]
    words, sums, powers = np.zeros(_WORDS, np.int64), np.zeros(size + 2, np.int64), np.zeros(size + 2, np.int64)
    for row in range(slots.shape[0]):
        slot = slots[row]
        count = seen[slot]
        if count < 2 or special[slot] != 0.0:
            results[row] = np.nan
            continue
        sums[:size], sums[size:] = digits[slot], 0
        powers[:size], powers[size:] = squares[slot], 0
        _carried(sums)
        _carried(powers)
        words[:] = 0
        first, second = square_tops[slot] - size + 1, 2 * (tops[slot] - size + 1)
        base = min(first, second)
        for at in range(size + 2):
            _add_product(words, first - base + at, powers[at], count & np.int64(0xFFFFFFFF), 1)
            _add_product(words, first - base + at + 1, powers[at], count >> np.int64(32), 1)
            for other in range(size + 2):
                _add_product(words, second - base + at + other, sums[at], sums[other], -1)
        negative = _carried(words)
        value, power = _rounded(words)
        pairs = np.float64(count) * np.float64(count - 1)
        # Of values as far from each other as only floats can be, what fell off may be all of the difference.
        results[row] = 0.0 if negative else math.ldexp(value / pairs, power + 32 * base - 2 * _BIAS)
