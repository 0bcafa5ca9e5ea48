"""Rows as messages: (key, value, headers) of each, in the order of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc

from seep.connectors.rowtext import check_json, json_lines, text_of
from seep.errors import Misuse
from seep.model.arrow import BUCKET, CHANGE, DELETE

FORMATS = ("json", "avro", "arrow", "raw")
PIECE_BYTES = 512 << 10
"""Of an Arrow message, about: brokers take no more than 1 MB unless they are told to."""


class Unwritten(NamedTuple):
    """A row of which a user's function made no message."""

    text: str
    reason: str


Value = bytes | None | Unwritten
Message = tuple[bytes | None, Value, list[tuple[str, bytes]] | None]
Values = Callable[[pa.RecordBatch], Sequence[Value]]
Format = str | Callable[[dict[str, Any]], bytes | None]


class Encoder:
    """Makes messages of the rows of a Stream, or of the changes of a Table: there a delete has no value."""

    def __init__(
        self, who: str, format: Format, key: Sequence[str], headers: Mapping[str, str], schema: pa.Schema
    ) -> None:
        self._key, self._headers, self._format = tuple(key), dict(headers), format
        self._values = _values_of(who, format, self._written(schema))

    def _written(self, schema: pa.Schema) -> pa.Schema:
        """Of raw messages the value is the one column that is neither key nor header."""
        aside = {*self._key, *self._headers.values()} if self._format == "raw" else set()
        return pa.schema([field for field in schema if field.name not in aside])

    def messages(self, record: pa.RecordBatch, table: bool) -> Iterator[Message]:
        rows = record.drop_columns([BUCKET])
        deleted = None
        if table:
            deleted = [change == DELETE for change in rows.column(CHANGE).to_pylist()]
            rows = rows.drop_columns([CHANGE])
        if self._format == "arrow" and not self._key:
            for piece in _pieces(rows):
                yield None, _stream(piece), None
            return
        keys = self._keys(rows)
        values = self._values(rows.select(self._written(rows.schema).names))
        headers = self._header_lists(rows)
        for number, value in enumerate(values):
            gone = deleted is not None and deleted[number]
            yield keys[number], None if gone else value, headers[number]

    def _keys(self, rows: pa.RecordBatch) -> list[bytes | None]:
        if not self._key:
            return [None] * rows.num_rows
        columns = [rows.column(name).to_pylist() for name in self._key]
        if len(columns) == 1:
            return [text_of(value) for value in columns[0]]
        return [json.dumps(parts, default=str, ensure_ascii=False).encode() for parts in zip(*columns, strict=True)]

    def _header_lists(self, rows: pa.RecordBatch) -> list[list[tuple[str, bytes]] | None]:
        if not self._headers:
            return [None] * rows.num_rows
        columns = {name: rows.column(column).to_pylist() for name, column in self._headers.items()}
        found: list[list[tuple[str, bytes]] | None] = []
        for number in range(rows.num_rows):
            texts = ((name, text_of(values[number])) for name, values in columns.items())
            found.append([(name, text) for name, text in texts if text is not None])
        return found


def _values_of(who: str, format: Format, schema: pa.Schema) -> Values:
    if callable(format):
        return lambda rows: [_by(format, row) for row in rows.to_pylist()]
    if format == "json":
        check_json(who, schema)
        return json_lines
    if format == "avro":
        from seep.connectors.kafka.avro import Writing

        write = Writing(who, schema)
        return lambda rows: [_by(write, row) for row in rows.to_pylist()]
    if format == "arrow":
        return lambda rows: [_stream(rows.slice(number, 1)) for number in range(rows.num_rows)]
    if len(schema) != 1 or not (pa.types.is_string(schema[0].type) or pa.types.is_binary(schema[0].type)):
        names = ", ".join(schema.names) or "none"
        raise Misuse(f"{who}: format='raw' needs one column of bytes or text besides key and headers; found {names}")
    return lambda rows: [text_of(value) for value in rows.column(0).to_pylist()]


def _by(encode: Callable[[dict[str, Any]], bytes | None], row: dict[str, Any]) -> Value:
    try:
        value: Any = encode(dict(row))
    except Exception as problem:  # a user's function
        return Unwritten(str(row), f"{type(problem).__name__}: {problem}")
    if value is None or isinstance(value, bytes):
        return value
    return Unwritten(str(row), f"the function of format= gave a {type(value).__name__}, not bytes")


def _stream(rows: pa.RecordBatch) -> bytes:
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(target.getvalue().to_pybytes())


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, rows.num_rows * PIECE_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)
