"""Compiled loops over single values of JSON: where they end, and what they are where that is simple.

What is not plain is left to the parser: escapes, exponents, numbers of many digits, dates that no calendar has.
``data`` is an address; behind every line is its end, which nothing looks past.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seep.model.hashing import compiled, load_byte

Bytes = npt.NDArray[np.uint8]
TEXT, WHOLE, NUMBER, TRUTH, TIME, ANY = range(6)
QUOTE, _BACKSLASH, OPEN, CLOSE, COLON, COMMA, LINE, _SPACE, _MINUS, _DOT, _ZERO, _NINE = b'"\\{}:,\n -.09'
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
_SHAPE = np.frombuffer(b"0000-00-00T00:00:00", np.uint8)
_TENS = np.array([float(10**power) for power in range(23)])
"""Each of them exact as a float. So is a whole number of 53 bits: then their quotient is the float that is nearest to
the decimal, which the parser gives, too."""
_EXACT = 2**53
NOT_PLAIN, UNREAD = -1, -2
"""Instead of an end: not plain, or not of this kind; plain, but the parser must say what it is."""


@compiled
def past_spaces(data: int, at: int) -> int:
    while load_byte(data + at) == _SPACE:
        at += 1
    return at


@compiled
def value_end(data: int, at: int, kind: int) -> tuple[int, int, float]:
    """Where it ends, and what it is as a whole number (a moment, a truth) and as a float. (A text is what lies between
    its quotes.)"""
    letter = load_byte(data + at)
    if letter == 110:  # n
        return _word(data, at, _NULL), 0, 0.0
    if letter == QUOTE:
        if kind == TIME:
            return _time(data, at + 1)
        return (text_end(data, at + 1) if kind in (TEXT, ANY) else NOT_PLAIN), 0, 0.0
    if letter == 116 or letter == 102:  # t, f
        if kind not in (TRUTH, ANY):
            return NOT_PLAIN, 0, 0.0
        return _word(data, at, _TRUE if letter == 116 else _FALSE), int(letter == 116), 0.0
    if kind not in (WHOLE, NUMBER, ANY):
        return NOT_PLAIN, 0, 0.0
    return _number(data, at, kind)


@compiled
def _word(data: int, at: int, word: Bytes) -> int:
    for letter in word:
        if load_byte(data + at) != letter:
            return NOT_PLAIN
        at += 1
    return at


@compiled
def _number(data: int, at: int, kind: int) -> tuple[int, int, float]:
    """No more digits than surely fit, and no exponent: such are rare."""
    negative = load_byte(data + at) == _MINUS
    at += negative
    first, whole = at, 0
    while _ZERO <= load_byte(data + at) <= _NINE:
        whole = 10 * whole + (load_byte(data + at) - _ZERO)
        at += 1
        if at - first > 18:
            return NOT_PLAIN, 0, 0.0
    if at == first or (load_byte(data + first) == _ZERO and at - first > 1):
        return NOT_PLAIN, 0, 0.0
    behind = 0
    digits = whole
    if kind != WHOLE and load_byte(data + at) == _DOT:
        first = at = at + 1
        while _ZERO <= load_byte(data + at) <= _NINE:
            if digits < _EXACT:
                digits = 10 * digits + (load_byte(data + at) - _ZERO)
            at += 1
        behind = at - first
        if not 1 <= behind <= 18:
            return NOT_PLAIN, 0, 0.0
    if kind == WHOLE:
        return at, -whole if negative else whole, 0.0
    if digits >= _EXACT and kind == NUMBER:
        return UNREAD, 0, 0.0
    number = digits / _TENS[behind]
    return at, 0, -number if negative else number


@compiled
def _time(data: int, at: int) -> tuple[int, int, float]:
    """2024-05-06T07:08:09, a fraction of at most six digits, Z: as microseconds since 1970."""
    for place in range(len(_SHAPE)):
        letter = load_byte(data + at + place)
        if _SHAPE[place] == _ZERO:
            if not _ZERO <= letter <= _NINE:
                return NOT_PLAIN, 0, 0.0
        elif letter != _SHAPE[place]:
            return NOT_PLAIN, 0, 0.0
    year, month, day = 100 * _two(data, at) + _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    hour, minute, second = _two(data, at + 11), _two(data, at + 14), _two(data, at + 17)
    if not (1 <= month <= 12 and 1 <= day <= _days_of(year, month) and hour <= 23 and minute <= 59 and second <= 59):
        return NOT_PLAIN, 0, 0.0
    at += len(_SHAPE)
    fraction = 0
    if load_byte(data + at) == _DOT:
        first = at = at + 1
        while _ZERO <= load_byte(data + at) <= _NINE and at - first < 7:
            fraction = 10 * fraction + (load_byte(data + at) - _ZERO)
            at += 1
        if not 1 <= at - first <= 6:
            return NOT_PLAIN, 0, 0.0
        for _ in range(6 - (at - first)):
            fraction *= 10
    at += load_byte(data + at) == 90  # Z
    if load_byte(data + at) != QUOTE:
        return NOT_PLAIN, 0, 0.0
    seconds = 86_400 * _days_before(year, month, day) + 3_600 * hour + 60 * minute + second
    return at + 1, 1_000_000 * seconds + fraction, 0.0


@compiled
def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@compiled
def _days_before(year: int, month: int, day: int) -> int:
    """Days from 1970 to this one. Years are counted from March, so that the odd day is the last of one."""
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468


@compiled
def _two(data: int, at: int) -> int:
    return int((load_byte(data + at) - _ZERO) * 10 + load_byte(data + at + 1) - _ZERO)


@compiled
def text_end(data: int, at: int) -> int:
    """Behind its closing quote; NOT_PLAIN: it has escapes, control characters, or is no UTF-8."""
    while True:
        letter = load_byte(data + at)
        if letter == QUOTE:
            return at + 1
        if letter < 0x20 or letter == _BACKSLASH:
            return NOT_PLAIN
        if letter < 0x80:
            at += 1
            continue
        more = _more(letter, load_byte(data + at + 1))
        if more == 0:
            return NOT_PLAIN
        for place in range(1, more + 1):
            if load_byte(data + at + place) & 0xC0 != 0x80:
                return NOT_PLAIN
        at += more + 1


@compiled
def _more(first: int, second: int) -> int:
    """How many bytes follow the first of a character; 0: none begins so (also none that is too long, or a half)."""
    if 0xC2 <= first <= 0xDF:
        return 1
    if first == 0xE0:
        return 2 if second >= 0xA0 else 0
    if first == 0xED:
        return 2 if second <= 0x9F else 0
    if 0xE1 <= first <= 0xEF:
        return 2
    if first == 0xF0:
        return 3 if second >= 0x90 else 0
    if first == 0xF4:
        return 3 if second <= 0x8F else 0
    return 3 if 0xF1 <= first <= 0xF3 else 0
