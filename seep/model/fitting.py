"""Python values as one column: what fits its type goes in unchanged, and nothing is made to fit.

Arrow by itself cuts 2.5 to 2, takes the number 1704067200000 for a time in 1970, and text for bytes. Which types the
values have is one cheap look at the whole column; single values are looked at only where those types leave a doubt.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, time
from enum import Enum
from functools import reduce
from itertools import chain
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seep.errors import Misuse

_AS_THEY_ARE = {str, bytes, int, float, bool, NoneType}
"""Values that `plain` would give back as they are."""


_TEMPORAL = (
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "timedelta"),
)


class _Unfit(ValueError):
    """The rest of the sentence "row 3 has ..."."""


_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""ValueError: also `_Unfit`, a NaN for a time, and text that is no Unicode."""


def column_of(values: Sequence[Any], declared: pa.Field, kind: pa.DataType) -> pa.Array:
    """The values as a column of this kind, the physical form of the declared type; refuses one that does not fit.

    >>> column_of([1, 2.5], pa.field("items", pa.int64()), pa.int64())
    Traceback (most recent call last):
    seep.errors.Misuse: column 'items': row 1 has 2.5, which is not a int64; round it, or declare a float
    """
    try:
        return _fitted(values, declared, kind)
    except _REFUSED as problem:
        raise Misuse(f"column {declared.name!r}: {_bad_value(values, declared, kind, problem)}") from problem


def _fitted(values: Sequence[Any], declared: pa.Field, kind: pa.DataType) -> pa.Array:
    found = set(map(type, values))
    if not found <= _AS_THEY_ARE:
        values = list(map(plain, values))
    array = pa.array(values, kind)
    if array.null_count and not declared.nullable:
        raise _Unfit("no value; declare it `T | None`")
    if pa.types.is_nested(kind):
        _refuse_inside(values, found, declared.type, declared.name)
    else:
        _refuse_unfit(values, found, declared.type, "")
    return array


def _bad_value(values: Sequence[Any], declared: pa.Field, kind: pa.DataType, problem: Exception) -> str:
    for row, value in enumerate(values):
        # A dead letter is found by trying its row alone: a number would be of no list that anybody knows.
        where = f"row {row}" if len(values) > 1 else "the row"
        try:
            _fitted([value], declared, kind)
        except _Unfit as unfit:
            return f"{where} has {unfit}"
        except _REFUSED:
            return f"{where} has {value!r}, which is not a {kind}"
    return str(problem)


def holes(array: pa.Array, declared: pa.Field) -> pa.Array | None:
    """Which rows of a column have no value somewhere inside of it, where one is declared; None: nothing is declared
    there. (A row that is null itself has nothing inside.)"""
    if pa.types.is_struct(declared.type):
        inside = [(array.field(at), field) for at, field in enumerate(declared.type)]
        found = [part for column, field in inside for part in _missing(column, field)]
        return pc.and_(array.is_valid(), reduce(pc.or_, found)) if found else None
    if pa.types.is_list(declared.type):
        found = _missing(array.flatten(), declared.type.value_field)
        if found:
            rows = pc.list_parent_indices(array).filter(reduce(pc.or_, found))
            return pc.is_in(pa.array(range(len(array)), rows.type), rows)
    return None


def whole(column: pa.Array, declared: pa.Field) -> pa.Array:
    """Which rows have a value everywhere where one is declared."""
    there = pa.repeat(True, len(column)) if declared.nullable else pc.is_valid(column)
    missing = holes(column, declared)
    return there if missing is None else pc.and_not(there, missing)


def _missing(array: pa.Array, declared: pa.Field) -> list[pa.Array]:
    deeper = holes(array, declared)
    return [*([] if declared.nullable else [array.is_null()]), *([] if deeper is None else [deeper])]


def _refuse_unfit(values: Iterable[Any], found: set[type], kind: pa.DataType, where: str) -> None:
    """Of values that Arrow has taken: is one of them another value now? ``found``: their types. ``where``: inside the
    column, such as ``place.name``."""
    if pa.types.is_integer(kind):
        if not all(issubclass(one, int | NoneType) for one in found):
            _refuse(values, lambda value: value != int(value), kind, where, "; round it, or declare a float")
    elif pa.types.is_temporal(kind):
        if any(map(_counts, found)):
            fit = next(name for is_kind, name in _TEMPORAL if is_kind(kind))
            _refuse(values, lambda value: _counts(type(value)), kind, where, f"; give a {fit}, or declare an int")
        if pa.types.is_date(kind) and any(issubclass(one, datetime) for one in found):
            _refuse(values, _has_a_time, kind, where, "; take its .date(), or declare a datetime")
    elif pa.types.is_string(kind):
        if any(issubclass(one, bytes | bytearray | memoryview) for one in found):
            _refuse(values, lambda value: not isinstance(value, str), kind, where, "; decode it, or declare bytes")
    elif pa.types.is_binary(kind):
        if any(issubclass(one, str) for one in found):
            _refuse(values, lambda value: isinstance(value, str), kind, where, "; encode it, or declare a str")
    elif pa.types.is_nested(kind):
        _refuse_inside(values, found, kind, where)


def _refuse_inside(values: Iterable[Any], found: set[type], kind: pa.DataType, where: str) -> None:
    there = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        # To Arrow a list may be a record, too: of pairs, or of nothing.
        _refuse(there, lambda value: not isinstance(value, Mapping), kind, where, "; give a dict or a dataclass")
        for field in kind:
            _refuse_field([value.get(field.name) for value in there], field, f"{where}.{field.name}")
    elif pa.types.is_list(kind):
        if any(issubclass(one, str | bytes) for one in found):
            _refuse(there, lambda value: isinstance(value, str | bytes), kind, where, "; give a list")
        _refuse_field(list(chain.from_iterable(there)), kind.value_field, f"{where}[]")
    elif pa.types.is_map(kind):
        pairs = [pair for value in there for pair in (value.items() if isinstance(value, Mapping) else value)]
        _refuse_field([key for key, _ in pairs], kind.key_field, f"{where}[]")
        _refuse_field([item for _, item in pairs], kind.item_field, f"{where}[]")


def _refuse_field(values: list[Any], field: pa.Field, where: str) -> None:
    found = set(map(type, values))
    if NoneType in found and not field.nullable:
        raise _Unfit(f"no value in {where}; declare it `T | None`")
    _refuse_unfit(values, found, field.type, where)


def _refuse(values: Iterable[Any], is_wrong: Any, kind: pa.DataType, where: str, hint: str) -> None:
    for value in values:
        if value is not None and is_wrong(value):
            raise _Unfit(f"{value!r}{where and f' in {where}'}, which is not a {kind}{hint}")


def _counts(one: type) -> bool:
    """Is it a type of plain numbers? numpy's timedelta64 calls itself one."""
    return issubclass(one, numbers.Number) and one.__name__ != "timedelta64"


def _has_a_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.time() != time.min


def plain(value: Any) -> Any:
    """Enums by value, naive datetimes as UTC, records as dicts: what pyarrow does not do by itself."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, str | bytes | int | float) or value is None:
        return value
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple) and len(value) == 2:  # Arrow takes no list for a pair of a map
        return plain(value[0]), plain(value[1])
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value
