"""Dataclasses to plain lists and back, driven by their type hints.

Everything persisted or sent is described by its Python type already; a second schema language would have to be kept
equal to it by hand. Reading checks every value against its hint, so a damaged or foreign value is refused at the
edge and never travels on. Pickle is not used: it runs code.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class MisfitError(ValueError):
    """A value that does not fit the type it is read as."""


class Form(NamedTuple):
    """How values of one type become plain (`pack`), and come back checked (`unpack`)."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def pack(value: Any) -> Any:
    """The plain value (lists, numbers, text, bytes) of a dataclass or NamedTuple."""
    return form(type(value)).pack(value)


def unpack(kind: type[T], value: Any) -> T:
    return typing.cast(T, form(kind).unpack(value))


def form(kind: Any) -> Form:
    """The form of a type: int, float, str, bool, bytes, Any, X | None, tuple[X, ...], Mapping[K, V], NamedTuple,
    dataclass."""
    if kind not in _forms:
        _forms[kind] = _form(kind)
    return _forms[kind]


_forms: dict[Any, Form] = {}


def _form(kind: Any) -> Form:
    if kind is Any:
        return Form(lambda value: value, lambda value: value)
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin = typing.get_origin(kind)
    if origin is typing.Union or origin is types.UnionType:
        return _optional(kind)
    if origin is tuple:
        return _sequence(typing.get_args(kind))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*typing.get_args(kind))
    if dataclasses.is_dataclass(kind):
        return _record(kind, [f.name for f in dataclasses.fields(kind)])
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _record(kind, list(kind._fields))
    raise TypeError(f"no plain form for {kind!r}")


def _checked(kind: type) -> Callable[[Any], Any]:
    def unpack_scalar(value: Any) -> Any:
        if type(value) is not kind:
            raise MisfitError(f"expected {kind.__name__}, found {type(value).__name__}")
        return value

    return unpack_scalar


def _unpack_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise MisfitError(f"expected float, found {type(value).__name__}")
    return float(value)


# `int` and `float` also turn numpy's scalars into numbers that msgpack knows.
_SCALARS: dict[Any, Form] = {
    int: Form(int, _checked(int)),
    float: Form(float, _unpack_float),
    str: Form(str, _checked(str)),
    bool: Form(bool, _checked(bool)),
    bytes: Form(bytes, _checked(bytes)),
}


def _optional(kind: Any) -> Form:
    inner = [a for a in typing.get_args(kind) if a is not type(None)]
    if len(inner) != 1 or len(typing.get_args(kind)) != 2:
        raise TypeError(f"no plain form for {kind!r}")
    there = form(inner[0])
    return Form(
        lambda value: None if value is None else there.pack(value),
        lambda value: None if value is None else there.unpack(value),
    )


def _list(value: Any, length: int | None = None) -> Any:
    if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
        raise MisfitError("expected a list" if length is None else f"expected a list of {length}")
    return value


def _sequence(arguments: tuple[Any, ...]) -> Form:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = form(arguments[0])
        return Form(
            lambda value: [item.pack(v) for v in value],
            lambda value: tuple(item.unpack(v) for v in _list(value)),
        )
    items = [form(a) for a in arguments]
    return Form(
        lambda value: [i.pack(v) for i, v in zip(items, value, strict=True)],
        lambda value: tuple(i.unpack(v) for i, v in zip(items, _list(value, len(items)), strict=True)),
    )


def _mapping(key_kind: Any, value_kind: Any) -> Form:
    # Pairs, not a msgpack map: keys such as PartitionId are lists, which no map takes.
    key, item = form(key_kind), form(value_kind)

    def unpack_mapping(value: Any) -> dict[Any, Any]:
        pairs = (_list(pair, 2) for pair in _list(value))
        return {key.unpack(k): item.unpack(v) for k, v in pairs}

    return Form(lambda value: [[key.pack(k), item.pack(v)] for k, v in value.items()], unpack_mapping)


def _record(kind: Any, names: list[str]) -> Form:
    hints = typing.get_type_hints(kind)
    forms = [form(hints[name]) for name in names]
    packers = [(name, f.pack) for name, f in zip(names, forms, strict=True)]
    unpackers = [f.unpack for f in forms]

    def unpack_record(value: Any) -> Any:
        values = _list(value, len(unpackers))
        return kind(*[unpack_field(v) for unpack_field, v in zip(unpackers, values, strict=True)])

    return Form(lambda value: [pack_field(getattr(value, name)) for name, pack_field in packers], unpack_record)
