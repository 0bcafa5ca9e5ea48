"""A message that is an Arrow stream, from anybody: looked through before Arrow is trusted with it.

Arrow takes the types and sizes of a stream for what they say. A type with a scale that nothing has ends the process in
a cast, and a few kilobytes unpack to gigabytes. So: first the sizes that the stream states of itself, then its types,
and only then are the declared columns read, validated and cast. Sizes stand in its flatbuffers, which Arrow has
verified but does not show; the little that is needed of them is read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc

from seep.errors import Misuse
from seep.model.schema import normalise, physical_type

UNPACKED_BYTES = 64 << 20
"""Of all columns of a message together."""
VALUES = 8 << 20
"""... and so many values: some take no bytes at all, and become columns of eight bytes each."""
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
"""Kinds of messages inside a stream, by their numbers in the format."""


def record_in(value: bytes, wanted: pa.Schema) -> pa.RecordBatch:
    """Its rows, with these columns in this order. Raises whatever comes up; `Misuse` in words of ours."""
    check_sizes(value)
    with pa.ipc.open_stream(value) as reader:
        chosen = _chosen(reader.schema, wanted)
    options = pa.ipc.IpcReadOptions(included_fields=chosen, use_threads=False)
    with pa.ipc.open_stream(value, options=options) as reader:
        records = [_cast(record, wanted) for record in reader]
    return pa.concat_batches(records) if records else pa.RecordBatch.from_pylist([], schema=wanted)


# --- sizes -----------------------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """Of a flatbuffer."""

    data: bytes
    at: int

    def field(self, number: int) -> int | None:
        """Where it stands; None: it is left out."""
        vtable = self.at - self._number("<i", self.at)
        slot = 4 + 2 * number
        offset = self._number("<H", vtable + slot) if slot < self._number("<H", vtable) else 0
        return self.at + offset if offset else None

    def number(self, number: int, kind: str) -> int:
        at = self.field(number)
        return 0 if at is None else self._number(kind, at)

    def table(self, number: int) -> _Table | None:
        at = self.field(number)
        return None if at is None else _Table(self.data, at + self._number("<I", at))

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A vector of structures of two numbers each."""
        at = self.field(number)
        if at is not None:
            vector = at + self._number("<I", at)
            end = vector + 4 + 16 * self._number("<I", vector)
            if end > len(self.data):
                raise Misuse("its description is broken")
            yield from struct.iter_unpack("<qq", self.data[vector + 4 : end])

    def _number(self, kind: str, at: int) -> int:
        if at < 0:
            raise Misuse("its description is broken")
        return int(struct.unpack_from(kind, self.data, at)[0])


def check_sizes(value: bytes) -> None:
    """Is the stream as large as a message may become? By what it states, which Arrow allocates."""
    left_bytes, left_values = UNPACKED_BYTES, VALUES
    for message in pa.ipc.MessageReader.open_stream(value):
        metadata = message.metadata.to_pybytes()
        root = _Table(metadata, int(struct.unpack_from("<I", metadata)[0]))
        kind, header = root.number(1, "<B"), root.table(2)
        if header is None or kind not in (_SCHEMA, _DICTIONARY, _BATCH):
            raise Misuse("it holds something else than columns")
        if kind == _SCHEMA:
            if header.number(0, "<h"):
                raise Misuse("its numbers have the order of bytes of other machines (big-endian)")
            continue
        if kind == _DICTIONARY:
            if header.number(2, "<B"):
                raise Misuse("it has a dictionary in parts (a delta)")  # put together before anybody can validate it
            header = header.table(1)
            if header is None:
                raise Misuse("it has a dictionary without values")
        size_bytes, values = _sizes(header, message.body)
        left_bytes, left_values = left_bytes - size_bytes, left_values - values
        if left_bytes < 0 or left_values < 0:
            limits = f"{UNPACKED_BYTES} bytes or {VALUES} values"
            raise Misuse(f"oversized: unpacked it has more than {limits}")


def _sizes(batch: _Table, body: Any) -> tuple[int, int]:
    """Bytes and values of a batch, unpacked."""
    held = 0 if body is None else body.size
    packed = batch.field(3) is not None
    size_bytes, values = 0, _plausible(batch.number(0, "<q"))
    for length, nulls in batch.pairs(1):
        if nulls > length:
            raise Misuse("it has more nulls than values")
        values += _plausible(length)
    for start, length in batch.pairs(2):
        if start < 0 or length < 0 or start + length > held:
            raise Misuse("it is shorter than it says")
        stated = length
        if packed and length >= 8:
            stated = int(struct.unpack_from("<q", body.slice(start, 8).to_pybytes())[0])
            if stated == -1:  # as it is: packing would have made it longer
                stated = length - 8
        size_bytes += _plausible(stated)
    return size_bytes, values


def _plausible(count: int) -> int:
    if count < 0:
        raise Misuse("it has a column of negative size")
    return count


# --- types -----------------------------------------------------------------------------------------------------------


def _chosen(found: pa.Schema, wanted: pa.Schema) -> list[int]:
    """Where the wanted columns stand; those of types that may become the wanted ones."""
    for field in found:
        _check_dictionaries(field.type, depth=0)
    numbers = []
    for field in wanted:
        places = found.get_all_field_indices(field.name)
        if len(places) != 1:
            raise Misuse(f"{'several columns' if places else 'no column'} {field.name!r}")
        kind = found.field(places[0]).type
        if not fits(kind, field.type):
            raise Misuse(f"{field.name!r} is a {_shown(kind)}, not a {field.type}")
        numbers.append(places[0])
    return numbers


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """May a column of the one type become one of the other? Whether each value fits, the cast says.

    >>> fits(pa.int32(), pa.int64()), fits(pa.string(), pa.int64())
    (True, False)
    """
    kinds = pa.types
    if kinds.is_dictionary(found):
        found = found.value_type
        if kinds.is_nested(found) or kinds.is_dictionary(found):
            return False
    if kinds.is_null(found):
        return True
    if kinds.is_decimal(found):
        return bool(kinds.is_decimal(wanted)) and 0 <= found.scale <= found.precision
    if kinds.is_integer(found):
        return bool(kinds.is_integer(wanted) or kinds.is_floating(wanted) or kinds.is_decimal(wanted))
    if kinds.is_floating(found):
        return bool(kinds.is_floating(wanted))
    if kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found):
        sized = not kinds.is_fixed_size_list(found) or 0 <= found.list_size <= VALUES
        return bool(kinds.is_list(wanted)) and sized and fits(found.value_type, wanted.value_type)
    if kinds.is_struct(found):
        names = [field.name for field in found]
        if not kinds.is_struct(wanted) or names != [field.name for field in wanted]:
            return False
        return all(fits(inner.type, other.type) for inner, other in zip(found, wanted, strict=True))
    return bool(physical_type(found) == wanted)


def _check_dictionaries(kind: pa.DataType, depth: int) -> None:
    """Those of columns that nobody wants are read, too."""
    if pa.types.is_dictionary(kind):
        if depth or not pa.types.is_integer(kind.index_type) or not _is_plain(kind.value_type):
            raise Misuse(f"it has a column of {_shown(kind)}")
    elif isinstance(kind, pa.BaseExtensionType):
        _check_dictionaries(kind.storage_type, depth)
    elif pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            _check_dictionaries(kind.field(number).type, depth + 1)


def _is_plain(kind: pa.DataType) -> bool:
    return fits(kind, physical_type(kind)) and not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def _shown(kind: pa.DataType) -> str:
    return " ".join(f"{kind!s:.200}".split())


# --- values ----------------------------------------------------------------------------------------------------------


def _cast(record: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    record.validate(full=True)
    record = record.select(wanted.names)
    for column in record.columns:
        _check_spread(column)
    return normalise(record).cast(wanted)


def _check_spread(column: pa.Array) -> None:
    """Rows that share what they hold have it each to themselves afterwards."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        _check_spread(column.values)
        return
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _check_spread(column.field(number))
        return
    lengths: Any = None
    if pa.types.is_dictionary(kind):
        if _has_length(kind.value_type):
            lengths = _lengths(column.dictionary).take(column.indices)
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = _lengths(column)
    if lengths is not None and (pa.compute.sum(lengths).as_py() or 0) > UNPACKED_BYTES:
        raise Misuse(f"oversized: a column has more than {UNPACKED_BYTES} bytes once each row has its own")


def _has_length(kind: pa.DataType) -> bool:
    kinds = pa.types
    texts = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    return bool(texts or kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind))


def _lengths(column: pa.Array) -> pa.Array:
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        # A view begins with its length: four bytes of sixteen.
        views = pa.Array.from_buffers(pa.int32(), 4 * (column.offset + len(column)), [None, column.buffers()[1]])
        counts = views.take(pa.array(range(4 * column.offset, 4 * (column.offset + len(column)), 4), pa.int64()))
        return pa.compute.if_else(column.is_valid(), counts, 0).cast(pa.int64())
    return pa.compute.binary_length(column).cast(pa.int64())
