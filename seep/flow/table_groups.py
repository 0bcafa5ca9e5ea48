"""`table.key_by(..).aggregate(..)` and `.top(..)`: the rows of a Table in groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
import pyarrow as pa

from operators.aggregates import Spec
from operators.derived import TryChanges
from operators.expressions import never_raises
from operators.ranking import check_ranking
from operators.retract import Retract
from operators.stateless import columns_read
from operators.table_aggregate import TableAggregate
from operators.table_top import TableTop
from seep.errors import Misuse
from seep.flow.dataset import known_on_error
from seep.flow.keyed import check_aggregates, hint_of, named, ready, refuse_clash
from seep.flow.logical import After, Input, Stage, Tap, Vertex
from seep.flow.place import at_place, place
from seep.flow.ranked import place_of
from seep.model.arrow import CHANGE
from seep.model.keyspace import check_keys

if TYPE_CHECKING:
    from seep.flow.table import Table

_ONE_COLUMN = ("count", "total", "mean", "minimum", "maximum")
"""Aggregates that read the column they are given, and nothing else of a row."""


class GroupedTable:
    """The rows of a Table by other columns than its key: they can be aggregated, or ranked."""

    def __init__(self, table: Table, keys: tuple[str, ...]) -> None:
        check_keys(table.schema, keys)
        self._table = table
        self._keys = keys

    def aggregate(self, emit: str = "update", on_error: str = "dead_letter", **aggregates: Spec) -> Table:
        """Aggregates of the rows that each group has now: a Table. A group without rows is deleted."""
        with at_place("aggregate"):
            if emit != "update":
                raise Misuse(
                    f"emit={emit!r}; behind key_by of a Table there is only 'update', which gives a Table;"
                    " collect(..) gives what it holds at the end"
                )
            computed = check_aggregates(self._table.schema, aggregates)
            refuse_clash(self._keys, tuple(aggregates))
            table, guard = self._tried("aggregate", computed, on_error)
            rows = _read(table, self._keys, aggregates)
            arguments = {"rows": rows, "aggregates": aggregates, "on_error": on_error}
            return self._made("aggregate", table, guard, TableAggregate, arguments, self._keys)

    def top(
        self, n: int, by: Any, descending: bool = True, ties: str = "number", on_error: str = "dead_letter"
    ) -> Table:
        """The best of the rows that each group has now, with their `rank` from 1: a Table."""
        with at_place("top"):
            given = tuple(by) if isinstance(by, list | tuple) else (by,)
            check_ranking(self._table.schema, n, given, descending, ties)
            place = place_of(self._table.schema, ties)
            table, guard = self._tried("top", [one for one in given if isinstance(one, pl.Expr)], on_error)
            arguments = {"rows": table.schema, "n": n, "by": given, "descending": descending, "ties": ties}
            return self._made("top", table, guard, TableTop, arguments, (*self._keys, place))

    def _tried(self, verb: str, expressions: list[pl.Expr], on_error: str) -> tuple[Table, Stage | None]:
        """The Table without the rows on which one of these expressions raises, and where those are refused."""
        known_on_error(on_error)
        table = self._table
        risky = tuple(one for one in expressions if not never_raises(one, table.schema))
        if not risky:
            return table, None
        stage = Stage(table.lineage, TryChanges(verb, risky, table.wire, on_error), verb, place())
        return type(table)(table.flow, After(stage, "out"), table.wire, table.primary), stage

    def _made(
        self, verb: str, table: Table, guard: Stage | None, head: Any, more: dict[str, Any], primary: tuple[str, ...]
    ) -> Table:
        arguments: dict[str, Any] = {"keys": self._keys, "primary": table.primary, **more}
        schemas = head(**arguments).schemas
        signed = retracted(table, more["rows"])
        inputs = (Input(Tap(signed, "out"), self._keys, signed.outputs["out"]),)
        make = partial(named if "on_error" in arguments else ready, head, arguments)
        vertex = table._operator(verb, make, schemas, inputs, hint_of(verb, self._keys))
        signed.owner, vertex.guard = vertex, guard
        if guard is not None:
            guard.owner = vertex
        return type(table)(table.flow, Tap(vertex, "out"), schemas["out"], primary)

    def __getattr__(self, name: str) -> NoReturn:
        if name in self._table.stream_only or hasattr(type(self._table), name):
            with at_place(name):
                raise Misuse(
                    f"a Table behind key_by has aggregate(..) and top(..) only; for {name} take .changes().{name}(..)"
                )
        raise AttributeError(f"a Table behind key_by has no {name!r}")


def _read(table: Table, keys: tuple[str, ...], aggregates: dict[str, Spec]) -> pa.Schema:
    """The columns of the Table that are needed."""
    if any(spec.aggregate not in _ONE_COLUMN for spec in aggregates.values()):
        return table.schema
    names: set[Any] = {*keys, *table.primary}
    for spec in aggregates.values():
        names |= columns_read(spec.column) if isinstance(spec.column, pl.Expr) else {spec.column}
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
