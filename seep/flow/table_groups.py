"""`table.key_by(..).aggregate(..)`: the rows of a Table in groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
import pyarrow as pa

from operators.aggregates import Spec
from operators.retract import Retract
from operators.table_aggregate import TableAggregate
from seep.errors import Misuse
from seep.flow.keyed import check_aggregates, hint_of, ready, refuse_clash
from seep.flow.logical import Input, Tap, Vertex
from seep.flow.place import at_place
from seep.model.arrow import CHANGE
from seep.model.keyspace import check_keys

if TYPE_CHECKING:
    from seep.flow.table import Table

_ONE_COLUMN = ("count", "total", "mean", "minimum", "maximum")
"""Aggregates that read the column they are given, and nothing else of a row."""


class GroupedTable:
    """The rows of a Table by other columns than its key: they can be aggregated."""

    def __init__(self, table: Table, keys: tuple[str, ...]) -> None:
        check_keys(table.schema, keys)
        self._table = table
        self._keys = keys

    def aggregate(self, **aggregates: Spec) -> Table:
        """Aggregates of the rows that each group has now: a Table. A group without rows is deleted."""
        with at_place("aggregate"):
            return self._aggregate(aggregates)

    def _aggregate(self, aggregates: dict[str, Spec]) -> Table:
        table = self._table
        check_aggregates(table.schema, aggregates)
        refuse_clash(self._keys, tuple(aggregates))
        rows = _read(table, self._keys, aggregates)
        arguments: dict[str, Any] = {
            "keys": self._keys,
            "primary": table.primary,
            "rows": rows,
            "aggregates": aggregates,
        }
        schema = TableAggregate(**arguments).schema
        signed = retracted(table, rows)
        inputs = (Input(Tap(signed, "out"), self._keys, signed.outputs["out"]),)
        make = partial(ready, TableAggregate, arguments)
        hint = hint_of("aggregate", self._keys)
        signed.owner = table._operator("aggregate", make, {"out": schema}, inputs, hint)
        return type(table)(table.flow, Tap(signed.owner, "out"), schema, self._keys)

    def __getattr__(self, name: str) -> NoReturn:
        if name in self._table.stream_only or hasattr(type(self._table), name):
            with at_place(name):
                raise Misuse(f"a Table behind key_by has aggregate(..) only; for {name} take .changes().{name}(..)")
        raise AttributeError(f"a Table behind key_by has no {name!r}")


def _read(table: Table, keys: tuple[str, ...], aggregates: dict[str, Spec]) -> pa.Schema:
    """The columns of the Table that are needed."""
    if any(spec.aggregate not in _ONE_COLUMN for spec in aggregates.values()):
        return table.schema
    names: set[Any] = {*keys, *table.primary}
    for spec in aggregates.values():
        names |= set(spec.column.meta.root_names()) if isinstance(spec.column, pl.Expr) else {spec.column}
    missing = sorted(names.difference({*table.schema.names, None}))
    if missing:
        raise Misuse(f"an aggregate reads {missing[0]!r}, which is not among {', '.join(table.schema.names)}")
    return pa.schema([field for field in table.schema if field.name in names])


def retracted(table: Table, rows: pa.Schema) -> Vertex:
    """The Table as signed rows of these columns (`operators.retract`)."""
    schema = Retract(table.primary, rows).schema
    make = partial(ready, Retract, {"keys": table.primary, "rows": rows})
    inputs = (Input(table.lineage, table.primary, pa.schema([*rows, table.wire.field(CHANGE)])),)
    return table._operator("retract", make, {"out": schema}, inputs, "rows")
