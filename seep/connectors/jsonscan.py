"""JSON objects read where that is simple: flat ones, of the declared columns and types, without anything unusual.

Arrow's parser reads many rows in one go, but takes several times as long, and one row that it cannot read spoils all
of them. So rows are gone through here first. Those that are plain are read on the way; of the others it is said
whether the parser will take them together with others of their kind. Nothing else is decided here: what is read is
what the parser would have read, and what comes of the other rows the parser alone says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.connectors.jsonvalues import (
    ANY,
    CLOSE,
    COLON,
    COMMA,
    LINE,
    NUMBER,
    OPEN,
    QUOTE,
    TEXT,
    TIME,
    TRUTH,
    UNREAD,
    WHOLE,
    Bytes,
    past_spaces,
    text_end,
    value_end,
)
from seep.model.hashing import compiled, load_byte

_KINDS = (
    (pa.types.is_string, TEXT),
    (pa.types.is_int64, WHOLE),
    (pa.types.is_float64, NUMBER),
    (pa.types.is_boolean, TRUTH),
    (pa.types.is_timestamp, TIME),
)
_MOST_COLUMNS = 63
_MOST_BYTES = 2**31 - 1
"""Of all texts of a column: where each begins is kept in half a word."""
UNUSUAL, PLAIN, READ = range(3)
"""A row that the parser may not like; one that it will take; one that needs no parser."""
Numbers = npt.NDArray[np.int64]


class Scanned(NamedTuple):
    states: npt.NDArray[np.uint8]
    """Of each row one of UNUSUAL, PLAIN, READ."""
    record: pa.RecordBatch
    """All rows; those that were not read are null in every column."""


class Scan:
    """Of the rows of one schema."""

    def __init__(self, schema: pa.Schema, kinds: list[int]) -> None:
        texts = [name.encode() for name in schema.names]
        self._schema = schema
        self._names = np.frombuffer(b"".join(texts) + b"\n", np.uint8)
        self._ends = np.cumsum([0, *map(len, texts)])
        self._kinds = np.array(kinds, np.int64)

    @classmethod
    def of(cls, schema: pa.Schema) -> Scan | None:
        """None: it has columns that are not known here."""
        kinds = [next((kind for fits, kind in _KINDS if fits(field.type)), None) for field in schema]
        known = [kind for kind in kinds if kind is not None]
        return cls(schema, known) if len(known) == len(schema) <= _MOST_COLUMNS else None

    def read(self, data: bytes, rows: int) -> Scanned | None:
        """So many rows, each with a line end behind it; None: too much of it, or there are line ends inside."""
        if len(data) > _MOST_BYTES:
            return None
        given = np.frombuffer(data, np.uint8)
        start = given.ctypes.data
        states = np.zeros(rows, np.uint8)
        there = np.zeros((len(self._kinds), rows), np.bool_)
        values = np.zeros(there.shape, np.int64)
        ends = np.empty((len(self._kinds) if TEXT in self._kinds else 0, rows), np.int64)
        floats = values.view(np.float64)
        used = _scan(start, self._names, self._ends, self._kinds, states, there, values, floats, ends)
        if used < len(given):
            return None
        arrays = [
            _text_column(start, values[column], ends[column], there[column])
            if kind == TEXT
            else _column(field.type, values[column], there[column])
            for column, (field, kind) in enumerate(zip(self._schema, self._kinds, strict=True))
        ]
        return Scanned(states, pa.RecordBatch.from_arrays(arrays, schema=self._schema))


def _column(kind: pa.DataType, values: Numbers, there: npt.NDArray[np.bool_]) -> pa.Array:
    data = np.packbits(values != 0, bitorder="little") if pa.types.is_boolean(kind) else values
    return pa.Array.from_buffers(kind, len(there), [_validity(there), pa.py_buffer(data)])


def _text_column(data: int, starts: Numbers, ends: Numbers, there: npt.NDArray[np.bool_]) -> pa.Array:
    offsets = np.zeros(len(there) + 1, np.int32)
    texts = np.empty(_place_texts(starts, ends, there, offsets), np.uint8)
    _copy_texts(data, starts, offsets, texts)
    return pa.Array.from_buffers(
        pa.string(), len(there), [_validity(there), pa.py_buffer(offsets), pa.py_buffer(texts)]
    )


def _validity(there: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))


@compiled
def _scan(
    data: int,
    names: Bytes,
    name_ends: Numbers,
    kinds: Numbers,
    states: npt.NDArray[np.uint8],
    there: npt.NDArray[np.bool_],
    values: Numbers,
    floats: npt.NDArray[np.float64],
    ends: Numbers,
) -> int:
    """Answers the length of so many lines."""
    at = 0
    for row in range(len(states)):
        end, state = _row(data, at, row, names, name_ends, kinds, there, values, floats, ends)
        states[row] = state
        if state != READ:
            there[:, row] = False
        if end >= 0:
            at = end
        while load_byte(data + at) != LINE:
            at += 1
        at += 1
    return at


@compiled
def _row(
    data: int,
    at: int,
    row: int,
    names: Bytes,
    name_ends: Numbers,
    kinds: Numbers,
    there: npt.NDArray[np.bool_],
    values: Numbers,
    floats: npt.NDArray[np.float64],
    ends: Numbers,
) -> tuple[int, int]:
    """Where the line of a plain row ends (-1: it is none), and what it is. No look ahead passes the line's end, which
    fits nothing."""
    if load_byte(data + at) != OPEN:
        return -1, UNUSUAL
    seen, guess, state = 0, 0, READ
    while True:
        at = past_spaces(data, at + 1)
        if load_byte(data + at) != QUOTE:
            return -1, UNUSUAL
        begin = at + 1
        at = text_end(data, begin)
        if at < 0:
            return -1, UNUSUAL
        column = _column_of(data, begin, at - 1, names, name_ends, guess)
        at = past_spaces(data, at)
        if load_byte(data + at) != COLON:
            return -1, UNUSUAL
        at = past_spaces(data, at + 1)
        kind = ANY
        if column >= 0:
            if seen >> column & 1:
                return -1, UNUSUAL
            seen |= 1 << column
            guess, kind = column + 1, kinds[column]
        end, whole, number = value_end(data, at, kind)
        if end == UNREAD:
            # Well-formed, but not to be read here. Where it ends must still be known.
            end, whole, number = value_end(data, at, ANY)
            state = PLAIN
        if end < 0:
            return -1, UNUSUAL
        if column >= 0 and load_byte(data + at) != 110:  # n, of null
            there[column, row] = True
            if kind == TEXT:
                values[column, row], ends[column, row] = at + 1, end - 1
            elif kind == NUMBER:
                floats[column, row] = number
            else:
                values[column, row] = whole
        at = past_spaces(data, end)
        if load_byte(data + at) != COMMA:
            break
    if load_byte(data + at) != CLOSE:
        return -1, UNUSUAL
    at = past_spaces(data, at + 1)
    return (at, state) if load_byte(data + at) == LINE else (-1, UNUSUAL)


@compiled
def _column_of(data: int, begin: int, end: int, names: Bytes, name_ends: Numbers, guess: int) -> int:
    """The column of this name, most often the one after the last; -1: there is none."""
    count = len(name_ends) - 1
    for step in range(count):
        column = (guess + step) % count
        low, size = name_ends[column], name_ends[column + 1] - name_ends[column]
        if size == end - begin:
            place = 0
            while place < size and load_byte(data + begin + place) == names[low + place]:
                place += 1
            if place == size:
                return column
    return -1


@compiled
def _place_texts(starts: Numbers, ends: Numbers, there: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int32]) -> int:
    """Where each text will begin; answers how long they are together."""
    size = 0
    for row in range(len(there)):
        if there[row]:
            size += ends[row] - starts[row]
        offsets[row + 1] = size
    return size


@compiled
def _copy_texts(data: int, starts: Numbers, offsets: npt.NDArray[np.int32], texts: Bytes) -> None:
    for row in range(len(starts)):
        begin, low = data + starts[row], np.int64(offsets[row])
        for place in range(offsets[row + 1] - low):
            texts[np.uint64(low + place)] = load_byte(begin + place)
