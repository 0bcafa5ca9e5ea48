"""Event time as users give it: a column, how late its rows may be, when a silent split counts as idle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from operators.stateless import UNITS_US
from seep.errors import Misuse
from seep.flow.dataset import known_columns
from seep.flow.logical import Time
from seep.model.duration import microseconds, positive_microseconds


def event_time_of(schema: pa.Schema, given: str | tuple[str, str]) -> Time:
    if isinstance(given, tuple) and len(given) != 2:
        raise Misuse(f"time={given!r}; give a timestamp column, or an integer column and its unit: ('ts', 'ms')")
    column, unit = given if isinstance(given, tuple) else (given, "us")
    known_columns(schema, (column,))
    kind = schema.field(column).type
    if unit not in UNITS_US:
        raise Misuse(f"unit {unit!r} of {column!r}; choose one of {', '.join(UNITS_US)}")
    if isinstance(given, tuple):
        if not pa.types.is_integer(kind):
            raise Misuse(f"{column!r} is a {kind}; a unit belongs to an integer column")
    elif not pa.types.is_timestamp(kind):
        raise Misuse(f"{column!r} is a {kind}, not a timestamp; for an integer give its unit: ({column!r}, 'ms')")
    return Time(column, unit)


def time_settings(time: Time, lateness: str | timedelta, idle: str | timedelta | None) -> dict[str, Any]:
    """What a source is told of its event time."""
    if microseconds(lateness) < 0:
        raise Misuse(f"lateness={lateness!r} is less than zero: every row would be late; give '0s' or more")
    # Rounded up: nothing is idle before its time.
    idle_ms = None if idle is None else -(-positive_microseconds(idle) // 1000)
    return {"time": time, "lateness_us": microseconds(lateness), "idle_ms": idle_ms}
