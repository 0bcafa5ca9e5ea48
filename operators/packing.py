"""Python values as bytes, for state: msgpack, with our own forms for what it does not know. Never pickle: what is
read back is data, not code.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgpack

T = TypeVar("T")

_TUPLE, _SET, _DATETIME, _DATE, _TIME, _DURATION, _DECIMAL, _INTEGER, _FROZENSET = range(1, 10)
SIMPLE = frozenset([type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal])
"""What is one value and never changes."""
_COLLECTIONS = frozenset([list, tuple, set, frozenset])
_CHANGEABLE = frozenset([list, dict, set])
KEEPS = "keep str, int, float, bool, bytes, dates, Decimal, None, or a list, tuple, dict or set of them"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def plain(value: T) -> T:
    """The value itself, if it can be saved.

    >>> plain({"a": (1, 2.5)})
    {'a': (1, 2.5)}
    """
    if type(value) in SIMPLE:
        return value
    held: Any = value
    if type(held) in _COLLECTIONS:
        for inner in held:
            plain(inner)
    elif type(held) is dict:
        for key, inner in held.items():
            plain(key)
            plain(inner)
    else:
        raise TypeError(f"state cannot keep a {type(value).__name__}; {KEEPS}")
    return value


def holds(kind: Any) -> bool:
    """Can values of this declared type be saved? What a type says of the values in it counts; `Any` and `object` say
    nothing, so each value is looked at when it comes.

    >>> holds(int), holds(dict[str, list[date]]), holds(int | None), holds(complex), holds(list[complex])
    (True, True, True, False, False)
    """
    if not isinstance(kind, Hashable):
        return False
    if kind in (Any, object, None, Ellipsis) or isinstance(kind, TypeVar | str):
        return True
    origin = get_origin(kind)
    if origin is Literal:
        return all(type(value) in SIMPLE for value in get_args(kind))
    if origin is Annotated:
        return holds(get_args(kind)[0])
    if origin is not None:
        return origin in (*_COLLECTIONS, dict, Union, UnionType) and all(map(holds, get_args(kind)))
    return kind in SIMPLE or kind in _COLLECTIONS or kind is dict


def copied(value: T) -> T:
    """A value that can be saved, apart from the one given: nobody who holds that one can change this one.

    >>> given = {"a": [1]}
    >>> kept = copied(given)
    >>> given["a"].append(2)
    >>> kept
    {'a': [1]}
    """
    held: Any = value
    kind = type(held)
    if kind in SIMPLE:
        return value
    if kind is dict:
        return {copied(key): copied(inner) for key, inner in held.items()}  # type: ignore[return-value]
    if kind is list or kind is tuple:
        return kind(copied(inner) for inner in held)  # type: ignore[no-any-return]
    return kind(plain(held))  # type: ignore[no-any-return]  # the members of a set cannot change


def changeable(value: Any) -> bool:
    """Can it be changed in place?

    >>> changeable((1, "a")), changeable((1, ["a"]))
    (False, True)
    """
    kind = type(value)
    if kind in SIMPLE:
        return False
    return any(map(changeable, value)) if kind is tuple else kind in _CHANGEABLE


def pack(value: Any) -> bytes:
    """The same bytes for the same value (sets by their packed members)."""
    return bytes(msgpack.packb(_prepare(value), default=_extend, strict_types=True))


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_revive, strict_map_key=False, use_list=True)


def _prepare(value: Any) -> Any:
    """Integers beyond 64 bits: msgpack refuses them before it asks us."""
    if type(value) is int:
        if -(2**63) <= value < 2**64:
            return value
        return msgpack.ExtType(_INTEGER, str(value).encode())
    if type(value) is list:
        return [_prepare(inner) for inner in value]
    if type(value) is tuple:
        return tuple(_prepare(inner) for inner in value)
    if type(value) is dict:
        return {_prepare(key): _prepare(inner) for key, inner in value.items()}
    return value


def _extend(value: Any) -> msgpack.ExtType:
    kind = type(value)
    if kind is tuple:
        return msgpack.ExtType(_TUPLE, pack(list(value)))
    if kind is set or kind is frozenset:
        members = sorted(pack(inner) for inner in value)
        return msgpack.ExtType(_SET if kind is set else _FROZENSET, pack(members))
    if kind is datetime:
        if value.tzinfo is None:
            return msgpack.ExtType(_DATETIME, pack([(value.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND, 0]))
        # Every zone becomes UTC: the moment is kept, the name of the zone is not.
        return msgpack.ExtType(_DATETIME, pack([(value - _EPOCH) // _MICROSECOND, 1]))
    if kind is date:
        return msgpack.ExtType(_DATE, pack(value.toordinal()))
    if kind is time:
        return msgpack.ExtType(_TIME, value.isoformat().encode())
    if kind is timedelta:
        return msgpack.ExtType(_DURATION, pack(value // _MICROSECOND))
    if kind is Decimal:
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    raise TypeError(f"state cannot keep a {kind.__name__}")


def _revive(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(unpack(data))
    if code == _SET:
        return {unpack(member) for member in unpack(data)}
    if code == _FROZENSET:
        return frozenset(unpack(member) for member in unpack(data))
    if code == _DATETIME:
        number, aware = unpack(data)
        moment = _EPOCH + number * _MICROSECOND
        return moment if aware else moment.replace(tzinfo=None)
    if code == _DATE:
        return date.fromordinal(unpack(data))
    if code == _TIME:
        return time.fromisoformat(data.decode())
    if code == _DURATION:
        return unpack(data) * _MICROSECOND
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _INTEGER:
        return int(data)
    raise ValueError(f"state has a value of the unknown kind {code}")
