"""Schemas as users write them, and the crossing between Python rows and Arrow columns.

A *declared* schema knows which fields may be null, so that a row with a missing value is refused where it enters.
Inside a flow every record has the *physical* form (`physical`): one type for each meaning (no large_string, times in
microseconds), every field nullable, no metadata. Then records from different paths always fit together, and a plan
compares types with ``==``.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from seep.errors import Misuse
from seep.model.fitting import column_of, plain

TIMESTAMP = pa.timestamp("us", "UTC")

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: TIMESTAMP,
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
    Decimal: pa.decimal128(38, 9),
}


def schema_of(declared: Any) -> pa.Schema:
    """The Arrow schema of a dataclass, NamedTuple, TypedDict, mapping of annotations, or of a schema itself.

    >>> schema_of({"store": str, "amount": float | None})
    store: string not null
    amount: double
    """
    if isinstance(declared, pa.Schema):
        refuse_columns(declared)
        return pa.schema([pa.field(f.name, physical_type(f.type, declared=True), f.nullable) for f in declared])
    if isinstance(declared, Mapping):
        hints = dict(declared)
    elif isinstance(declared, type) and _is_record(declared):
        hints = _hints(declared)
    else:
        raise Misuse(f"schema {declared!r}: give a dataclass, NamedTuple, TypedDict, dict of types or pyarrow.Schema")
    if not hints:
        raise Misuse(f"schema {declared!r} has no fields")
    refuse_names(hints)
    return pa.schema([_field(name, hint) for name, hint in hints.items()])


def refuse_names(names: Iterable[Any]) -> None:
    """Refuse column names that operators use for columns of their own, and what is no name."""
    for name in names:
        if not isinstance(name, str) or not name or name.startswith("__"):
            raise Misuse(f"column {name!r}: give a name of letters, not beginning with '__'; rename it")


def refuse_columns(schema: pa.Schema) -> None:
    """Refuse columns that no operator can work with."""
    refuse_names(schema.names)
    for field in schema:
        if pa.types.is_decimal256(field.type):
            raise Misuse(f"column {field.name!r} is a {field.type}; cast it to a decimal128, which has 38 digits")


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or typing.is_typeddict(kind)


def _hints(kind: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as problem:
        raise Misuse(f"schema {kind.__name__}: {problem}; its types must be visible in its module") from problem
    if dataclasses.is_dataclass(kind):
        return {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    # Those of a TypedDict with total=False do not say so themselves.
    left_out = [name for name in getattr(kind, "__optional_keys__", ()) if not _is_required(hints[name])]
    return hints | {name: typing.NotRequired[hints[name]] for name in left_out}


def _is_required(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Required


def _field(name: str, hint: Any) -> pa.Field:
    kind, nullable = type_of(hint, name)
    return pa.field(name, kind, nullable)


def type_of(hint: Any, where: str = "") -> tuple[pa.DataType, bool]:
    """The Arrow type of an annotation, and whether it may be null.

    >>> type_of(list[int] | None)
    (ListType(list<item: int64 not null>), True)
    """
    if isinstance(hint, pa.DataType):
        return physical_type(hint), True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_of(arguments[0], where)
    if origin in (typing.Required, typing.NotRequired):
        inner, nullable = type_of(arguments[0], where)
        return inner, nullable or origin is typing.NotRequired
    if isinstance(hint, Hashable) and hint in _SCALARS:
        return _SCALARS[hint], False
    if origin in (typing.Union, types.UnionType):
        real = [a for a in arguments if a is not type(None)]
        if len(real) == 1:
            return type_of(real[0], where)[0], True
    if origin is typing.Literal and all(isinstance(a, str) for a in arguments):
        return pa.string(), False
    if origin in (list, Sequence) and arguments:
        kind, nullable = type_of(arguments[0], where)
        return pa.list_(pa.field("item", kind, nullable)), False
    if isinstance(hint, type) and issubclass(hint, Enum):
        return pa.string(), False
    if isinstance(hint, type) and _is_record(hint):
        return pa.struct([_field(name, inner) for name, inner in _hints(hint).items()]), False
    known = (
        "str, int, float, bool, bytes, datetime, date, timedelta, Decimal, Enum, Literal, list, a dataclass, T | None"
    )
    raise Misuse(f"field {where!r}: no column type for {hint!r}; use one of {known}")


# --- one physical form -------------------------------------------------------------------------------------------


def physical_type(kind: pa.DataType, declared: bool = False) -> pa.DataType:
    """The one type used inside a flow for what this type means; ``declared``: still knowing what inside of it may be
    null."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_dictionary(kind):
        return physical_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_inside(kind.value_field, "item", declared))
    if pa.types.is_struct(kind):
        return pa.struct([_inside(f, f.name, declared) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(physical_type(kind.key_type, declared), _inside(kind.item_field, "value", declared))
    if isinstance(kind, pa.BaseExtensionType):
        return physical_type(kind.storage_type, declared)
    return kind


def _inside(field: pa.Field, name: str, declared: bool) -> pa.Field:
    return pa.field(name, physical_type(field.type, declared), field.nullable or not declared)


def physical(schema: pa.Schema) -> pa.Schema:
    """The schema that records inside a flow have."""
    return pa.schema([pa.field(f.name, physical_type(f.type)) for f in schema])


def normalise(record: pa.RecordBatch) -> pa.RecordBatch:
    """The record in its physical form; the same object when it already is.

    Nanoseconds are cut to microseconds, and a naive timestamp is taken for UTC.
    """
    schema = physical(record.schema)
    if record.schema.equals(schema) and not record.schema.metadata:
        return record
    arrays = [_to_type(array, field.type) for array, field in zip(record.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _to_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return _to_type(array.storage, kind)
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(kind)
    return array.cast(kind, safe=False)


def refuse_counted_times(there: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse numbers where times are wanted, and the other way round: Arrow takes them for microseconds, and nothing
    says that they are."""
    for field in wanted:
        kind = there.field(field.name).type
        if any(pa.types.is_temporal(a) and _is_number(b) for a, b in ((field.type, kind), (kind, field.type))):
            raise Misuse(f"column {field.name!r} is a {kind}, not a {field.type}; declare it as it is, or convert it")


def _is_number(kind: pa.DataType) -> bool:
    return (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) and not pa.types.is_temporal(kind)


# --- rows --------------------------------------------------------------------------------------------------------


def record_of(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Rows (dicts, dataclasses, tuples in field order, or scalars for one column) as columns in physical form.

    >>> record_of([[1, 2], [3]], pa.schema({"items": pa.list_(pa.int64())})).to_pylist()
    [{'items': [1, 2]}, {'items': [3]}]
    """
    columns = _columns(rows, schema)
    kinds = physical(schema)
    fields = zip(columns, schema, kinds.types, strict=True)
    arrays = [column_of(values, declared, kind) for values, declared, kind in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def _columns(rows: Sequence[Any], schema: pa.Schema) -> list[Sequence[Any]]:
    names, kinds = schema.names, set(map(type, rows))
    one_list = len(names) == 1 and pa.types.is_list(physical_type(schema.types[0]))
    getters = {kind: _from_scalar if one_list and issubclass(kind, list) else _getter(kind, names) for kind in kinds}
    if set(getters.values()) == {_from_scalar}:
        return [rows]
    if all(issubclass(kind, tuple) and getattr(kind, "_fields", None) == tuple(names) for kind in kinds):
        # Named as declared: nothing has to be asked of each row.
        return [list(map(itemgetter(at), rows)) for at in range(len(names))]
    values = [getters[type(row)](row, names) for row in rows]
    return [list(map(itemgetter(at), values)) for at in range(len(names))]


_Getter = Callable[[Any, list[str]], Sequence[Any]]


def _getter(kind: type, names: list[str]) -> _Getter:
    if issubclass(kind, Mapping):
        return _from_mapping
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _from_attributes
    if issubclass(kind, tuple | list):
        return _from_sequence
    if len(names) == 1:
        return _from_scalar
    raise Misuse(f"a row is a {kind.__name__}; give a dict, dataclass or tuple with the fields {', '.join(names)}")


def _from_mapping(row: Any, names: list[str]) -> Sequence[Any]:
    if len(row) > len(names) or any(name not in names for name in row):
        extra = next(name for name in row if name not in names)
        raise Misuse(f"a row has the field {extra!r}, which is not in the schema ({', '.join(names)})")
    return [row.get(name) for name in names]


def _from_attributes(row: Any, names: list[str]) -> Sequence[Any]:
    try:
        return [getattr(row, name) for name in names]
    except AttributeError as problem:
        raise Misuse(f"a row is a {type(row).__name__}: {problem}") from problem


def _from_sequence(row: Any, names: list[str]) -> Sequence[Any]:
    if len(row) != len(names):
        raise Misuse(f"a row has {len(row)} values for the {len(names)} columns {', '.join(names)}")
    return typing.cast(Sequence[Any], row)


def _from_scalar(row: Any, _names: list[str]) -> Sequence[Any]:
    return (row,)


def rows_of(record: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Columns as dicts, one for each row."""
    return typing.cast(list[dict[str, Any]], record.to_pylist())


def infer_schema(rows: Iterable[Any]) -> pa.Schema:
    """The schema of rows without a declared one: of their class, or of the types of their values (all nullable)."""
    found = list(rows)
    if not found:
        raise Misuse("no rows to take a schema from; declare one with schema=")
    kind = type(found[0])
    if not issubclass(kind, dict) and _is_record(kind):
        if _hints(kind) or not all(type(row) is kind for row in found):
            return schema_of(kind)
        found = [row._asdict() for row in found]  # of collections.namedtuple: it has names, and no types
        kind = dict
    if not issubclass(kind, Mapping):
        raise Misuse(f"rows are {kind.__name__}; their column names are not known: declare them with schema=")
    for number, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise Misuse(f"row {number} is {row!r}, the first one a {kind.__name__}; give each as a {kind.__name__}")
    names = dict.fromkeys(name for row in found for name in row)
    refuse_names(names)
    return pa.schema([pa.field(name, _infer_type(name, [row.get(name) for row in found])) for name in names])


def _infer_type(name: str, values: list[Any]) -> pa.DataType:
    if all(value is None for value in values):
        raise Misuse(f"column {name!r} is null in every row; declare its type with schema=")
    try:
        return _type_of_values(values)
    except pa.ArrowException as problem:
        raise Misuse(f"column {name!r} mixes types: {problem}; declare its type with schema=") from problem
    except (TypeError, ValueError, OverflowError) as problem:  # TypeError: of numpy's dates
        raise Misuse(
            f"column {name!r} has a value that no column holds: {problem}; change it, or declare a type with schema="
        ) from problem


def _type_of_values(values: Iterable[Any]) -> pa.DataType:
    """What `type_of` says of records and decimals, wherever they are; of the rest what Arrow says."""
    there = [value for value in values if value is not None]
    kinds = set(map(type, there))
    if len(kinds) == 1 and _is_record(kind := type(there[0])) and _hints(kind):
        return type_of(kind)[0]
    if kinds and all(issubclass(kind, Mapping) for kind in kinds):
        names = dict.fromkeys(name for value in there for name in value)
        if all(isinstance(name, str) for name in names):
            return pa.struct([(name, _type_of_values(value.get(name) for value in there)) for name in names])
    if kinds and all(issubclass(kind, list | tuple) and not hasattr(kind, "_fields") for kind in kinds):
        return pa.list_(_type_of_values(chain.from_iterable(there)))
    if {Decimal} <= kinds <= {Decimal, int}:
        return _SCALARS[Decimal]
    return physical_type(pa.array(list(map(plain, there))).type)
