"""SQL's types as Arrow's and Polars'.

``numeric`` is read as float64: seep's means and quotients are float64 too, and the comparison knows it.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa
from sqlglot import exp

from tests.foreign.verdicts import NotSaid

_TYPES: dict[str, tuple[pa.DataType, pl.DataType]] = {
    "int64": (pa.int64(), pl.Int64()),
    "float64": (pa.float64(), pl.Float64()),
    "string": (pa.string(), pl.String()),
    "bool": (pa.bool_(), pl.Boolean()),
    "date": (pa.date32(), pl.Date()),
    "timestamp": (pa.timestamp("us", "UTC"), pl.Datetime("us", "UTC")),
    "binary": (pa.binary(), pl.Binary()),
    "duration": (pa.duration("us"), pl.Duration("us")),
}
_NAMES = {
    "TINYINT": "int64", "SMALLINT": "int64", "INT": "int64", "BIGINT": "int64", "SERIAL": "int64",
    "FLOAT": "float64", "DOUBLE": "float64", "DECIMAL": "float64",
    "VARCHAR": "string", "TEXT": "string", "CHAR": "string", "NVARCHAR": "string",
    "BOOLEAN": "bool", "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp", "DATETIME": "timestamp",
    "VARBINARY": "binary", "BINARY": "binary", "INTERVAL": "duration",
}  # fmt: skip
INTERVAL_UNITS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}


def _of(kind: exp.Expression | None) -> tuple[pa.DataType, pl.DataType]:
    name = getattr(getattr(kind, "this", None), "name", "")
    if not isinstance(kind, exp.DataType) or kind.args.get("nested") or name not in _NAMES:
        raise NotSaid(f"type {kind.sql().lower().split('(')[0] if kind is not None else 'unknown'}")
    return _TYPES[_NAMES[name]]


def arrow_type(kind: exp.Expression | None) -> pa.DataType:
    return _of(kind)[0]


def polars_type(kind: exp.Expression | None) -> pl.DataType:
    return _of(kind)[1]
