"""The canonical form of a row's key: the same key is the same words, for ever, whatever buffers it came in.

A row is a sequence of 64-bit little-endian words, column after column. Each column gives a *header* word and its
payload, zero-padded to whole words:

    header  = tag << 56 | scale << 48 | payload length in bytes      (a null is the word 0, without payload)
    tags      1 bool · 2 integer · 3 string · 4 binary · 5 date · 6 timestamp · 7 duration · 8 decimal
              9 float · 10 time of day · 11 nested

Integers of every width are widened to 64 bits, so int32 5 and int64 5 are one key; dates are days; timestamps,
durations and times are microseconds; a decimal is its 128-bit unscaled value, with its scale (as a signed byte) in
the header. The length in each header makes the form unambiguous: two rows of the same column types have the same
words if and only if they are equal. Floats (one NaN) and nested values (the words of what is inside, one after the
other) have a form for digests and comparisons only; as keys they are refused (`key_problem`).

Saved state is identified by these bytes, so none of this may ever change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seep.errors import Misuse
from seep.model.hashing import (
    Positions,
    Words,
    compiled,
    count_fixed,
    count_variable,
    put_fixed,
    put_variable,
    store_word,
)

BOOL, INTEGER, STRING, BINARY, DATE, TIMESTAMP, DURATION, DECIMAL, FLOAT, TIME, NESTED = range(1, 12)


class Rows(NamedTuple):
    """Row ``i`` is ``words[offsets[i]:offsets[i + 1]]``."""

    offsets: Positions
    words: Words


class Column(NamedTuple):
    """Where a column's memory is, in the few shapes that the loops read."""

    tag: int
    scale: int
    width: int
    """Words of a value; -1 when the length varies; 0 when every row is null."""
    values: int
    """Address of the values (varying: of the bytes)."""
    starts: int
    """Varying: address of the 32-bit offsets."""
    validity: int
    bit: int
    array: Any
    """Keeps the memory alive."""


def key_problem(kind: pa.DataType) -> str | None:
    """Why a column of this type cannot be a key; None when it can."""
    if pa.types.is_dictionary(kind):
        return key_problem(kind.value_type)
    if pa.types.is_floating(kind):
        return "a float is never safely equal to another; round it to an integer or decimal first"
    if pa.types.is_nested(kind):
        return "nested values have no order; choose one of its fields"
    return None


def column_of(array: pa.Array) -> Column:
    """Bring an array of any type into one of the shapes."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return column_of(array.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return column_of(array.storage)
    if pa.types.is_string(kind):
        return _varying(STRING, array)
    if pa.types.is_binary(kind):
        return _varying(BINARY, array)
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        return _fixed(INTEGER, array)
    if pa.types.is_null(kind):
        return Column(0, 0, 0, 0, 0, 0, 0, array)
    return _converted(array, kind)


def _converted(array: pa.Array, kind: pa.DataType) -> Column:
    """The types that come second: each is turned into one that the loops read."""
    if pa.types.is_integer(kind):
        return _fixed(INTEGER, array.cast(pa.int64()))
    if pa.types.is_boolean(kind):
        return _fixed(BOOL, array.cast(pa.int64()))
    if pa.types.is_timestamp(kind):
        return _fixed(TIMESTAMP, _exact(array, pa.timestamp("us", kind.tz)))
    if pa.types.is_duration(kind):
        return _fixed(DURATION, _exact(array, pa.duration("us")))
    if pa.types.is_date(kind):
        return _fixed(DATE, array.cast(pa.date32()).view(pa.int32()).cast(pa.int64()))
    if pa.types.is_time(kind):
        return _fixed(TIME, _exact(array, pa.time64("us")))
    if pa.types.is_decimal128(kind):
        return _fixed(DECIMAL, array, 2, kind.scale)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return _fixed(DECIMAL, array.cast(pa.decimal128(kind.precision, kind.scale)), 2, kind.scale)
    if pa.types.is_floating(kind):
        return _float(array.cast(pa.float64()))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _varying(STRING, array.cast(pa.string()))
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or _is_fixed_binary(kind):
        return _varying(BINARY, array.cast(pa.binary()))
    if pa.types.is_struct(kind):
        return _nested(array, encode(array.flatten(), len(array)), np.ones(len(array), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = array.flatten()
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return _nested(array, encode([inside], len(inside)), lengths)
    texts = [None if value is None else repr(value).encode() for value in array.to_pylist()]
    return _varying(NESTED, pa.array(texts, pa.binary()))


def _nested(array: pa.Array, inside: Rows, lengths: Any) -> Column:
    """``inside``: the words of everything inside; ``lengths``: how many of its rows each value has."""
    bounds = 8 * inside.offsets[np.concatenate([[0], np.cumsum(lengths)])]
    if bounds[-1] >= 2**31:
        raise Misuse("the nested values of one batch exceed 2 GiB; make its epochs smaller")
    buffers = [_bits(array.is_valid()), pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(inside.words)]
    return _varying(NESTED, pa.Array.from_buffers(pa.binary(), len(array), buffers))


def _exact(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as problem:
        raise Misuse(f"a {array.type} does not fit {kind} exactly: {problem}") from problem


def _fixed(tag: int, array: pa.Array, width: int = 1, scale: int = 0) -> Column:
    validity, values = array.buffers()
    start = 0 if values is None else values.address + array.offset * width * 8
    return Column(tag, scale, width, start, 0, _bitmap(array, validity), array.offset, array)


def _varying(tag: int, array: pa.Array) -> Column:
    validity, starts, data = array.buffers()
    first = 0 if starts is None else starts.address + array.offset * 4
    return Column(tag, 0, -1, 0 if data is None else data.address, first, _bitmap(array, validity), array.offset, array)


def _bitmap(array: pa.Array, validity: Any) -> int:
    return 0 if validity is None or array.null_count == 0 else int(validity.address)


def _float(array: pa.Array) -> Column:
    values = array.to_numpy(zero_copy_only=False)
    nans = np.isnan(values)
    if nans.any():
        valid = array.is_valid()
        plain = np.where(nans, np.nan, values)
        array = pa.Array.from_buffers(pa.float64(), len(array), [_bits(valid), pa.py_buffer(plain)])
    return _fixed(FLOAT, array)


def _bits(valid: pa.Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid.to_numpy(zero_copy_only=False), bitorder="little"))


def encode(columns: Sequence[pa.Array], rows: int) -> Rows:
    """The canonical form of every row over these columns."""
    shapes = [column_of(array) for array in columns]
    offsets = np.zeros(rows + 1, np.int64)
    if rows == 0:
        return Rows(offsets, np.empty(0, np.uint64))
    for shape in shapes:
        if shape.width < 0:
            count_variable(offsets, shape.starts, shape.validity, shape.bit)
        elif shape.width == 0:
            offsets[1:] += 1
        else:
            count_fixed(offsets, shape.width, shape.validity, shape.bit)
    np.cumsum(offsets, out=offsets)
    words = np.empty(offsets[-1], np.uint64)
    cursor = offsets[:-1].copy()
    for shape in shapes:
        _put(words, cursor, shape)
    return Rows(offsets, words)


def _put(words: Words, cursor: Positions, shape: Column) -> None:
    header = shape.tag << 56 | (shape.scale & 0xFF) << 48
    if shape.width < 0:
        put_variable(words, cursor, shape.starts, shape.values, np.uint64(header), shape.validity, shape.bit)
    elif shape.width == 0:
        words[cursor] = 0
        cursor += 1
    else:
        header |= 8 * shape.width
        put_fixed(words, cursor, shape.values, shape.width, np.uint64(header), shape.validity, shape.bit)


# --- back to columns ---------------------------------------------------------------------------------------------


def decode(words: Words, starts: npt.NDArray[np.integer[Any]], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns of the keys whose words begin at ``starts``; the inverse of `encode`."""
    cursor = starts.astype(np.int64)
    return [_decode_column(words, cursor, kind) for kind in kinds]


def _decode_column(words: Words, cursor: Positions, kind: pa.DataType) -> pa.Array:
    rows = len(cursor)
    valid = np.empty(rows, np.bool_)
    if pa.types.is_dictionary(kind):
        return _decode_column(words, cursor, kind.value_type).cast(kind)
    if _is_text(kind):
        offsets = np.zeros(rows + 1, np.int32)
        _measure(words, cursor, offsets, valid)
        data = np.empty(offsets[-1] + 8, np.uint8)
        _copy_bytes(words, cursor, offsets, data.ctypes.data)
        plain = pa.string() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pa.binary()
        buffers = [_mask(valid), pa.py_buffer(offsets), pa.py_buffer(data).slice(0, int(offsets[-1]))]
        return _as(pa.Array.from_buffers(plain, rows, buffers), kind)
    width = 2 if pa.types.is_decimal(kind) else 1
    values = np.zeros((rows, width), np.uint64)
    _copy_words(words, cursor, values, valid)
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    return _as(pa.Array.from_buffers(_stored_as(kind), rows, [_mask(valid), pa.py_buffer(values)]), kind)


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in (*checks, _is_fixed_binary))


def _is_fixed_binary(kind: pa.DataType) -> bool:
    # pyarrow counts decimals among the fixed-size binaries.
    return bool(pa.types.is_fixed_size_binary(kind)) and not pa.types.is_decimal(kind)


def _stored_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_uint64(kind):
        return kind
    return pa.int64()


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_date(kind):
        return array.cast(pa.int32()).view(pa.date32()).cast(kind)
    return array.cast(kind)


def _mask(valid: Any) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


@compiled
def _measure(words: Words, cursor: Positions, offsets: Any, valid: Any) -> None:
    total = np.int64(0)
    for row in range(cursor.shape[0]):
        header = words[cursor[row]]
        valid[row] = header != 0
        total += np.int64(header & np.uint64(0xFFFFFFFFFFFF))
        offsets[row + 1] = total


@compiled
def _copy_bytes(words: Words, cursor: Positions, offsets: Any, data: int) -> None:
    """Whole words: what the last one has too much, the next row overwrites (behind the last row there is room)."""
    for row in range(cursor.shape[0]):
        at = cursor[row] + 1
        to = data + np.int64(offsets[row])
        length = (np.int64(offsets[row + 1] - offsets[row]) + 7) >> 3
        for word in range(length):
            store_word(to + 8 * word, words[at + word])
        cursor[row] = at + length


@compiled
def _copy_words(words: Words, cursor: Positions, values: Any, valid: Any) -> None:
    for row in range(cursor.shape[0]):
        at = cursor[row]
        valid[row] = words[at] != 0
        cursor[row] = at + 1
        if valid[row]:
            for part in range(values.shape[1]):
                values[row, part] = words[at + 1 + part]
            cursor[row] += values.shape[1]
