"""Which of many JSON objects are plain: flat, of the declared columns and types, without anything unusual.

Arrow's parser reads many rows in one go, but one that it cannot read spoils all of them. So rows are looked at before:
those that are plain are parsed together, the others apart. Nothing is decided here about a row. One that is called
plain and is not costs time, as does one that is plain and is not called so; what comes of it the parser alone says.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.model.hashing import compiled

TEXT, WHOLE, NUMBER, TRUTH, TIME, ANY = range(6)
_KINDS = (
    (pa.types.is_string, TEXT),
    (pa.types.is_int64, WHOLE),
    (pa.types.is_float64, NUMBER),
    (pa.types.is_boolean, TRUTH),
    (pa.types.is_timestamp, TIME),
)
_MOST_COLUMNS = 63
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COLON, _COMMA, _LINE, _SPACE, _MINUS, _DOT, _ZERO, _NINE = b'"\\{}:,\n -.09'
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))
_SHAPE = np.frombuffer(b"0000-00-00T00:00:00", np.uint8)
Bytes = npt.NDArray[np.uint8]


class Scan:
    """Of the rows of one schema."""

    def __init__(self, names: list[str], kinds: list[int]) -> None:
        texts = [name.encode() for name in names]
        self._names = np.frombuffer(b"".join(texts) + b"\n", np.uint8)
        self._ends = np.cumsum([0, *map(len, texts)])
        self._kinds = np.array(kinds, np.int64)

    @classmethod
    def of(cls, schema: pa.Schema) -> Scan | None:
        """None: it has columns that are not known here."""
        kinds = [next((kind for fits, kind in _KINDS if fits(field.type)), None) for field in schema]
        known = [kind for kind in kinds if kind is not None]
        return cls(schema.names, known) if len(known) == len(schema) <= _MOST_COLUMNS else None

    def plain(self, data: bytes, rows: int) -> npt.NDArray[np.bool_]:
        """For each of so many lines, is it a plain row?"""
        found = np.zeros(rows, np.bool_)
        _scan(np.frombuffer(data + b"\n", np.uint8), self._names, self._ends, self._kinds, found)
        return found


@compiled
def _scan(
    data: Bytes, names: Bytes, ends: npt.NDArray[np.int64], kinds: npt.NDArray[np.int64], found: npt.NDArray[np.bool_]
) -> None:
    at = 0
    for row in range(len(found)):
        end = _row(data, at, names, ends, kinds)
        if end >= 0:
            found[row] = True
            at = end
        while data[at] != _LINE:
            at += 1
        at += 1


@compiled
def _row(data: Bytes, at: int, names: Bytes, ends: npt.NDArray[np.int64], kinds: npt.NDArray[np.int64]) -> int:
    """Where the line of a plain row ends; -1: it is none. No look ahead passes the line's end, which fits nothing."""
    if data[at] != _OPEN:
        return -1
    seen, guess = 0, 0
    while True:
        at = _past_spaces(data, at + 1)
        if data[at] != _QUOTE:
            return -1
        begin = at + 1
        at = _text(data, begin)
        if at < 0:
            return -1
        column = _column(data, begin, at - 1, names, ends, guess)
        at = _past_spaces(data, at)
        if data[at] != _COLON:
            return -1
        at = _past_spaces(data, at + 1)
        kind = ANY
        if column >= 0:
            if seen >> column & 1:
                return -1
            seen |= 1 << column
            guess, kind = column + 1, kinds[column]
        at = _value(data, at, kind)
        if at < 0:
            return -1
        at = _past_spaces(data, at)
        if data[at] != _COMMA:
            break
    if data[at] != _CLOSE:
        return -1
    at = _past_spaces(data, at + 1)
    return at if data[at] == _LINE else -1


@compiled
def _past_spaces(data: Bytes, at: int) -> int:
    while data[at] == _SPACE:
        at += 1
    return at


@compiled
def _column(data: Bytes, begin: int, end: int, names: Bytes, ends: npt.NDArray[np.int64], guess: int) -> int:
    """The column of this name, most often the one after the last; -1: there is none."""
    count = len(ends) - 1
    for step in range(count):
        column = (guess + step) % count
        low, size = ends[column], ends[column + 1] - ends[column]
        if size == end - begin:
            place = 0
            while place < size and data[begin + place] == names[low + place]:
                place += 1
            if place == size:
                return column
    return -1


@compiled
def _value(data: Bytes, at: int, kind: int) -> int:
    """Where it ends; -1: it is not plain, or not of this kind."""
    letter = data[at]
    if letter == 110:  # n
        return _word(data, at, _NULL)
    if letter == _QUOTE:
        if kind == TIME and not _time(data, at + 1):
            return -1
        return _text(data, at + 1) if kind in (TEXT, TIME, ANY) else -1
    if letter == 116 or letter == 102:  # t, f
        if kind not in (TRUTH, ANY):
            return -1
        return _word(data, at, _TRUE if letter == 116 else _FALSE)
    if kind not in (WHOLE, NUMBER, ANY):
        return -1
    return _number(data, at, kind != WHOLE)


@compiled
def _word(data: Bytes, at: int, word: Bytes) -> int:
    for letter in word:
        if data[at] != letter:
            return -1
        at += 1
    return at


@compiled
def _number(data: Bytes, at: int, broken: bool) -> int:
    """No more digits than surely fit, and no exponent: such are rare."""
    at += data[at] == _MINUS
    first = at
    while _ZERO <= data[at] <= _NINE:
        at += 1
    digits = at - first
    if not 1 <= digits <= 18 or (data[first] == _ZERO and digits > 1):
        return -1
    if broken and data[at] == _DOT:
        first = at = at + 1
        while _ZERO <= data[at] <= _NINE:
            at += 1
        if not 1 <= at - first <= 18:
            return -1
    return at


@compiled
def _time(data: Bytes, at: int) -> bool:
    """2024-05-06T07:08:09, a fraction of at most six digits, Z; not, whether the month has such a day."""
    for place in range(len(_SHAPE)):
        letter = data[at + place]
        if _SHAPE[place] == _ZERO:
            if not _ZERO <= letter <= _NINE:
                return False
        elif letter != _SHAPE[place]:
            return False
    month, day = _two(data, at + 5), _two(data, at + 8)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return False
    if _two(data, at + 11) > 23 or _two(data, at + 14) > 59 or _two(data, at + 17) > 59:
        return False
    at += len(_SHAPE)
    if data[at] == _DOT:
        first = at = at + 1
        while _ZERO <= data[at] <= _NINE:
            at += 1
        if not 1 <= at - first <= 6:
            return False
    at += data[at] == 90  # Z
    return bool(data[at] == _QUOTE)


@compiled
def _two(data: Bytes, at: int) -> int:
    return int((data[at] - _ZERO) * 10 + data[at + 1] - _ZERO)


@compiled
def _text(data: Bytes, at: int) -> int:
    """Behind its closing quote; -1: it has escapes, control characters, or is no UTF-8."""
    while True:
        letter = data[at]
        if letter == _QUOTE:
            return at + 1
        if letter < 0x20 or letter == _BACKSLASH:
            return -1
        if letter < 0x80:
            at += 1
            continue
        more = _more(letter, data[at + 1])
        if more == 0:
            return -1
        for place in range(1, more + 1):
            if data[at + place] & 0xC0 != 0x80:
                return -1
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
