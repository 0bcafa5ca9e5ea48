"""The fields of an entry, which are bytes, as a row: each column has the form that `RedisSink` would write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from seep.connectors.textforms import value_maker
from seep.errors import Misuse
from seep.model.schema import physical, record_of

ENTRY_BYTES = 8 << 20
"""A larger one is not decoded."""
_WHOLE = re.compile(r"[+-]?\d+")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}

Entry = Mapping[bytes, bytes]
Kept = tuple[pa.RecordBatch, list[tuple[int, str]]]
"""Rows, and (number of the entry, reason) of those that are none."""


class FieldDecoder:
    """Fields that are not in the schema are left out."""

    def __init__(self, who: str, declared: pa.Schema) -> None:
        self._declared = declared
        self.schema = physical(declared)
        self._columns = [(f.name, f.name.encode(), _reading(who, f)) for f in declared]

    def decode(self, entries: Sequence[Entry]) -> Kept:
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        refused: list[tuple[int, str]] = []
        for number, entry in enumerate(entries):
            try:
                rows.append(self._row(entry))
                numbers.append(number)
            except Misuse as problem:
                refused.append((number, str(problem)))
        try:
            return record_of(rows, self._declared), refused
        except Misuse:
            records = [record_of([], self._declared)]
            for number, row in zip(numbers, rows, strict=True):
                try:
                    records.append(record_of([row], self._declared))
                except Misuse as problem:
                    refused.append((number, str(problem)))
            return pa.concat_batches(records), sorted(refused)

    def _row(self, entry: Entry) -> dict[str, Any]:
        size_bytes = sum(len(name) + len(value) for name, value in entry.items())
        if size_bytes > ENTRY_BYTES:
            raise Misuse(f"it has {size_bytes} bytes, more than {ENTRY_BYTES}")
        row = {}
        for name, field, read in self._columns:
            value = entry.get(field)
            try:
                row[name] = None if value is None else read(value)
            except (ValueError, InvalidOperation, KeyError, RecursionError):
                kind = self.schema.field(name).type
                raise Misuse(f"field {name!r} has {value!r:.100}, which is not a {kind}") from None
        return row


def _reading(who: str, field: pa.Field) -> Callable[[bytes], Any]:
    kind = field.type
    if pa.types.is_binary(kind):
        return lambda value: value
    if pa.types.is_string(kind):
        return lambda value: value.decode()
    if pa.types.is_integer(kind):
        return _whole
    if pa.types.is_floating(kind):
        return lambda value: float(_number(value))
    if pa.types.is_decimal(kind):
        return lambda value: Decimal(_number(value))
    if pa.types.is_boolean(kind):
        return lambda value: _TRUTH[value.decode().lower()]
    if pa.types.is_timestamp(kind):
        return lambda value: datetime.fromisoformat(value.decode())
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value.decode())
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        make = value_maker(kind)
        return json.loads if make is None else lambda value: make(json.loads(value))
    raise Misuse(f"{who}: field {field.name!r}: text has no {kind}; declare a number or text and convert it")


def _whole(value: bytes) -> int:
    text = value.decode()
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _number(value: bytes) -> str:
    text = value.decode()
    if "_" in text:
        raise ValueError(text)
    return text
