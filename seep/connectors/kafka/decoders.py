"""Bytes of messages as columns. A message that cannot be read is named with the reason and harms no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa

from seep.connectors.jsonrows import JsonDecoder
from seep.connectors.kafka.arrowstream import record_in
from seep.errors import Misuse
from seep.model.fitting import whole
from seep.model.schema import physical, record_of, schema_of

MESSAGE_BYTES = 8 << 20
"""A larger one is not decoded: with all that comes of it, it would take the memory of many epochs."""


class Decoded(NamedTuple):
    record: pa.RecordBatch
    messages: list[int]
    """For each row, the number of the message it comes from."""
    refused: list[tuple[int, str]]
    """(number of the message, reason)."""


class Decoder(Protocol):
    schema: pa.Schema

    def decode(self, values: list[bytes | None]) -> Decoded: ...


def decoder_of(who: str, format: Any, schema: Any) -> Decoder:
    if format == "raw":
        if schema is not None:
            raise Misuse(f"{who}: format='raw' has one column, value; leave schema= out")
        return RawDecoder()
    if not callable(format) and format not in ("json", "arrow", "avro"):
        raise Misuse(f"{who}: format={format!r}; there are 'json', 'avro', 'arrow', 'raw', and a function of your own")
    if schema is None:
        raise Misuse(f"{who}: give schema=, since the topic does not say what its messages hold")
    declared = schema_of(schema)
    if format == "json":
        return ManyDecoder(JsonDecoder(declared))
    if format == "arrow":
        return ArrowDecoder(declared)
    if format == "avro":
        from seep.connectors.kafka.avro import reading

        return EachDecoder(declared, reading(who, declared))
    return EachDecoder(declared, format)


def problem_of(value: bytes | None) -> str:
    """Why a message is not even looked into; empty when it is."""
    if value is None:
        return "it has no value (a tombstone)"
    if len(value) > MESSAGE_BYTES:
        return f"it has {len(value)} bytes, more than {MESSAGE_BYTES}"
    return ""


def _apart(values: list[bytes | None]) -> tuple[list[int], list[bytes], list[tuple[int, str]]]:
    """Numbers and values of what can be looked into; what cannot."""
    good = cast("list[bytes]", values)
    if all(values) and max(map(len, good), default=0) <= MESSAGE_BYTES:
        return list(range(len(values))), good, []
    good = [value for value in values if value is not None and len(value) <= MESSAGE_BYTES]
    refused = [(number, why) for number, value in enumerate(values) if (why := problem_of(value))]
    bad = {number for number, _ in refused}
    return [number for number in range(len(values)) if number not in bad], good, refused


class RawDecoder:
    """One column, `value`: null for a tombstone."""

    schema = pa.schema([("value", pa.binary())])

    def decode(self, values: list[bytes | None]) -> Decoded:
        refused = [(n, problem_of(value)) for n, value in enumerate(values) if value and len(value) > MESSAGE_BYTES]
        bad = {number for number, _ in refused}
        kept = [number for number in range(len(values)) if number not in bad]
        column = pa.array([values[number] for number in kept], pa.binary())
        return Decoded(pa.RecordBatch.from_arrays([column], schema=self.schema), kept, refused)


class ManyDecoder:
    """All messages at once."""

    def __init__(self, rows: JsonDecoder) -> None:
        self._rows = rows
        self.schema = rows.schema

    def warm(self) -> None:
        self._rows.warm()

    def decode(self, values: list[bytes | None]) -> Decoded:
        numbers, good, refused = _apart(values)
        record, kept, bad = self._rows.decode(good)
        if not refused:
            return Decoded(record, kept, sorted(bad))
        refused += [(numbers[number], why) for number, why in bad]
        return Decoded(record, [numbers[number] for number in kept], sorted(refused))


class EachDecoder:
    """Message after message, by a function that gives a row or raises."""

    def __init__(self, declared: pa.Schema, row_of: Callable[[bytes], Any]) -> None:
        self._declared = declared
        self._row_of = row_of
        self.schema = physical(declared)

    def decode(self, values: list[bytes | None]) -> Decoded:
        numbers, good, refused = _apart(values)
        rows: list[Any] = []
        kept: list[int] = []
        for number, value in zip(numbers, good, strict=True):
            try:
                rows.append(self._row_of(value))
                kept.append(number)
            except Exception as problem:  # a user's function, or one that reads anything at all
                refused.append((number, f"{type(problem).__name__}: {problem}"))
        try:
            record = record_of(rows, self._declared)
        except Misuse:
            record, kept, bad = self._row_by_row(rows, kept)
            refused += bad
        return Decoded(record, kept, sorted(refused))

    def _row_by_row(self, rows: list[Any], kept: list[int]) -> tuple[pa.RecordBatch, list[int], list[tuple[int, str]]]:
        records, good, bad = [record_of([], self._declared)], [], []
        for number, row in zip(kept, rows, strict=True):
            try:
                records.append(record_of([row], self._declared))
                good.append(number)
            except Misuse as problem:
                bad.append((number, str(problem)))
        return pa.concat_batches(records), good, bad


class ArrowDecoder:
    """Each message is an Arrow stream with the declared columns, in any order."""

    def __init__(self, declared: pa.Schema) -> None:
        self._declared = declared
        self.schema = physical(declared)

    def decode(self, values: list[bytes | None]) -> Decoded:
        numbers, good, refused = _apart(values)
        records = [pa.RecordBatch.from_pylist([], schema=self.schema)]
        of_row: list[int] = []
        for number, value in zip(numbers, good, strict=True):
            try:
                record = self._record(value)
            except Exception as problem:  # bytes that are anything at all: also names that are no text
                refused.append((number, f"{' '.join(str(problem).split()):.1000}" or type(problem).__name__))
                continue
            records.append(record)
            of_row += [number] * record.num_rows
        return Decoded(pa.concat_batches(records), of_row, sorted(refused))

    def _record(self, value: bytes) -> pa.RecordBatch:
        record = record_in(value, self.schema)
        for field in self._declared:
            if not field.nullable and record.column(field.name).null_count:
                raise Misuse(f"{field.name!r} is null")
            if pa.types.is_nested(field.type) and not all(whole(record.column(field.name), field)):
                raise Misuse(f"something in {field.name!r} is null")
        return record
