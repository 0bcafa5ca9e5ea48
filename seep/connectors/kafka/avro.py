"""Avro: a message is one datum in Avro's binary form, with the schema that follows from the declared columns.

There is no schema registry: writer and reader agree on the columns, as they do with JSON.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from seep.errors import Misuse

_LONG_ENOUGH = {"type": "bytes", "logicalType": "decimal"}
_PLAIN: tuple[tuple[Callable[[Any], bool], Any], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "long"),
    (pa.types.is_floating, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_timestamp, {"type": "long", "logicalType": "timestamp-micros"}),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (pa.types.is_time, {"type": "long", "logicalType": "time-micros"}),
)


def avro_schema(who: str, schema: pa.Schema, name: str = "Row") -> dict[str, Any]:
    """The Avro record of these columns.

    >>> avro_schema("me", pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())]))["fields"]
    [{'name': 'n', 'type': 'long'}, {'name': 'text', 'type': ['null', 'string']}]
    """
    return {"type": "record", "name": name, "fields": [_field(who, field, name) for field in schema]}


def _field(who: str, field: pa.Field, inside: str) -> dict[str, Any]:
    kind = _type(who, field.type, field.name, inside)
    return {"name": field.name, "type": ["null", kind] if field.nullable else kind}


def _type(who: str, kind: pa.DataType, column: str, inside: str) -> Any:
    for is_kind, name in _PLAIN:
        if is_kind(kind):
            return name
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return {**_LONG_ENOUGH, "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind):
        item = _type(who, kind.value_type, column, inside)
        return {"type": "array", "items": ["null", item] if kind.value_field.nullable else item}
    if pa.types.is_struct(kind):
        name = f"{inside}_{column}"
        return {"type": "record", "name": name, "fields": [_field(who, part, name) for part in kind]}
    raise Misuse(f"{who}: column {column!r}: Avro has no {kind}")


def reading(who: str, schema: pa.Schema) -> Callable[[bytes], dict[str, Any]]:
    """From bytes to a row. Trailing bytes are refused: they tell of another schema."""
    return Reading(_parsed(who, schema))


class Reading:
    """Goes to the workers with its schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def __call__(self, value: bytes) -> dict[str, Any]:
        import fastavro

        stream = io.BytesIO(value)
        row = fastavro.schemaless_reader(stream, self._schema, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
        assert isinstance(row, dict)
        return row


class Writing:
    """From a row to bytes."""

    def __init__(self, who: str, schema: pa.Schema) -> None:
        self._schema = _parsed(who, schema)

    def __call__(self, row: dict[str, Any]) -> bytes:
        import fastavro

        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._schema, row)
        return stream.getvalue()


def _parsed(who: str, schema: pa.Schema) -> Any:
    return _library(who).parse_schema(avro_schema(who, schema))


def _library(who: str) -> Any:
    try:
        import fastavro
    except ImportError as problem:
        raise Misuse(f"{who}: format='avro' needs the package fastavro: pip install 'seep[avro]'") from problem
    return fastavro
