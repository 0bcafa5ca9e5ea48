"""Rows as text for others: JSON objects, and single values as people write them."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa

from seep.errors import Misuse


def text_of(value: Any) -> bytes | None:
    """Text and bytes as they are, lists, records and truth values as JSON, anything else as people write it.

    >>> text_of("a"), text_of(1.5), text_of(True), text_of([1, None])
    (b'a', b'1.5', b'true', b'[1, null]')
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=str, ensure_ascii=False).encode()
    return (value.isoformat() if hasattr(value, "isoformat") else str(value)).encode()


def check_json(who: str, schema: pa.Schema) -> None:
    """Refuse columns that JSON does not have."""
    for field in schema:
        if _holds_bytes(field.type):
            raise Misuse(f"{who}: column {field.name!r}: JSON has no bytes; choose another format, or make text of it")


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(part.type) for part in kind)
    return pa.types.is_binary(kind) or (pa.types.is_list(kind) and _holds_bytes(kind.value_type))


def json_lines(rows: pa.RecordBatch) -> list[bytes | None]:
    """An object for each row, times in ISO 8601, decimals as text; numbers that JSON does not have become null."""
    exact = [f.with_type(pa.string()) if pa.types.is_decimal(f.type) else f for f in rows.schema]
    frame = pl.from_arrow(rows.cast(pa.schema(exact)))
    assert isinstance(frame, pl.DataFrame)
    return list(frame.write_ndjson().encode().splitlines())
