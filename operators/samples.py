"""Generated rows on which expressions are tried before a flow runs.

Few rows, chosen so that whatever looks at a neighbour shows: a repeated row (is_duplicated, rank), nulls between
values (forward_fill, interpolate), rising and falling values (cum_sum, shift, diff, first). Three sets, since a strict
conversion of text refuses most text.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

_PATTERN = (3, None, 7, 7, 1, None, 9, 2)
_TEXTS = (
    lambda n: "abcdefghij"[n] + "-x" * n,
    lambda n: str(n),
    lambda n: f"2024-01-0{n}T00:00:0{n}",
    lambda n: f'{{"a": {n}}}',
)


def sample_frames(schema: pa.Schema) -> Iterator[pl.DataFrame]:
    """One frame for each way of writing text."""
    for text in range(len(_TEXTS) if any(_has_text(field.type) for field in schema) else 1):
        # Rows 2 and 3 are equal in every column; elsewhere columns are shifted, so that not all nulls coincide.
        columns = {field.name: [_value(field.type, n, text) for n in _numbers(at)] for at, field in enumerate(schema)}
        record = pa.RecordBatch.from_pydict(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))
        frame = pl.from_arrow(record)
        assert isinstance(frame, pl.DataFrame)
        yield frame


def _numbers(at: int) -> list[int | None]:
    numbers = list(_PATTERN)
    if at % 2:
        numbers[0], numbers[1] = numbers[1], 4
        numbers[5], numbers[6] = 8, None
    return numbers


def _has_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_nested(type))


def _value(type: pa.DataType, number: int | None, text: int) -> Any:
    if number is None or pa.types.is_null(type):
        return None
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return _TEXTS[text](number)
    if pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return _TEXTS[text](number).encode()
    if pa.types.is_boolean(type):
        return number % 2 == 1
    if pa.types.is_floating(type):
        return number + 0.5
    if pa.types.is_decimal(type):
        return Decimal(number)
    if pa.types.is_timestamp(type):
        moment = datetime(2024, 1, number, number, tzinfo=UTC)
        return moment if type.tz else moment.replace(tzinfo=None)
    if pa.types.is_date(type):
        return datetime(2024, 1, number, tzinfo=UTC).date()
    if pa.types.is_duration(type):
        return timedelta(seconds=number)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return [_value(type.value_type, n, text) for n in range(1, 1 + number % 3)]
    if pa.types.is_struct(type):
        return {field.name: _value(field.type, number, text) for field in type}
    if pa.types.is_map(type):
        return [(_value(type.key_type, n, text), _value(type.item_type, n, text)) for n in range(1, 1 + number % 3)]
    if pa.types.is_dictionary(type):
        return _value(type.value_type, number, text)
    return number
