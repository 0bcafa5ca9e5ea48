"""The columns of what a user's function returns: from `schema=`, else from its return annotation."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from operators.rowwise import VALUE
from seep.errors import Misuse
from seep.model.schema import schema_of, type_of

_ITERABLES = (
    list,
    tuple,
    set,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Sequence,
)


def row_schema(function: Callable[..., Any], schema: Any) -> pa.Schema:
    """Of a function that returns one row."""
    if schema is not None:
        return _schema(schema)
    hint = _returned(function)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        real = [one for one in typing.get_args(hint) if one is not type(None)]
        hint = real[0] if len(real) == 1 else hint
    return _schema(hint)


def item_schema(function: Callable[..., Any], schema: Any) -> pa.Schema:
    """Of a function that returns rows."""
    if schema is not None:
        return _schema(schema)
    hint = _returned(function)
    if typing.get_origin(hint) not in _ITERABLES or not typing.get_args(hint):
        raise Misuse(f"the return annotation {hint!r} does not say what its items are; write Iterator[Row] or schema=")
    return _schema(typing.get_args(hint)[0])


def _schema(hint: Any) -> pa.Schema:
    if isinstance(hint, pa.Schema | collections.abc.Mapping) or hasattr(hint, "__annotations__"):
        if not isinstance(hint, type) or not issubclass(hint, str | int | float | bytes):
            return schema_of(hint)
    kind, nullable = type_of(hint, VALUE)
    return pa.schema([pa.field(VALUE, kind, nullable)])


def _returned(function: Callable[..., Any]) -> Any:
    target = function if hasattr(function, "__annotations__") else type(function).__call__
    try:
        hint = typing.get_type_hints(target).get("return")
    except NameError as problem:
        raise Misuse(f"the return annotation cannot be read ({problem}); give schema=") from problem
    if hint is None or hint is Any:
        raise Misuse("what the function returns is not known; annotate its return type or give schema=")
    return hint
