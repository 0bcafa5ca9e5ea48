"""Tables: one current row for each key. They travel as changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import polars as pl
import pyarrow as pa

from operators.expressions import condition, never_raises, project
from operators.stateless import Project
from seep.errors import Misuse
from seep.flow.broadcasting import Broadcast
from seep.flow.dataset import Dataset, dropping, expressions_of, known_on_error, renaming
from seep.flow.place import at_place
from seep.flow.stream import Stream
from seep.flow.table_groups import GroupedTable
from seep.flow.table_joins import join_foreign, join_tables, table_of
from seep.flow.tabled import Versions, remade
from seep.model.arrow import CHANGE

_STREAM_ONLY = (
    "map",
    "flat_map",
    "map_batch",
    "union",
    "split",
    "event_time",
    "aggregate",
    "window",
    "table",
    "top",
    "dedupe",
    "reduce",
    "apply",
    "shuffle",
    "to_one",
    "local",
    "route",
    "two_choices",
    "join_table",
)

_GROUPED = ("aggregate", "top")
"""Those of them that are there behind `key_by`."""


class Table(Dataset):
    """One current row for each key; at most one change for each key and epoch.

    >>> import seep
    >>> flow = seep.Flow("prices")
    >>> prices = flow.source("prices", seep.MemorySource([{"item": "tea", "price": 3}, {"item": "tea", "price": 4}]))
    >>> prices.key_by("item").table().named("prices-now").collect("now")
    >>> seep.run(flow)["now"].to_pylist()
    [{'item': 'tea', 'price': 4}]
    """

    stream_only = _STREAM_ONLY
    versions: Versions | None = None
    """Set where `table(history=)` made it, and behind verbs that keep a Table one."""

    @property
    def primary(self) -> tuple[str, ...]:
        """The columns of which each combination has one row."""
        assert self.keys is not None
        return self.keys

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self.wire if field.name != CHANGE])

    def _table_keys(self) -> tuple[str, ...] | None:
        return self.primary

    def changes(self) -> Stream:
        """The Stream of changes: the columns, and `change` = insert, update or delete (with the old values)."""
        return Stream(self.flow, self.lineage, self.wire, self.keys)

    def select(self, *expressions: Any, on_error: str = "dead_letter", **named: Any) -> Table:
        """Only these columns; the key columns must be among them."""
        with at_place("select"):
            known_on_error(on_error)
            return remade(self, "select", self._planned("select", expressions, named, keep=False), None, on_error)

    def with_columns(self, *expressions: Any, on_error: str = "dead_letter", **named: Any) -> Table:
        """All columns, and these besides."""
        with at_place("with_columns"):
            known_on_error(on_error)
            step = self._planned("with_columns", expressions, named, keep=True)
            if not self._only_adds(step):
                return remade(self, "with_columns", step, None, on_error)
            columns = (*step.columns, (CHANGE, CHANGE))
            schema = step.schema.append(self.wire.field(CHANGE))
            return self._kept("with_columns", Project("with_columns", columns, step.computed, schema, "fail"))

    def filter(self, keep: pl.Expr | Callable[[Any], Any], on_error: str = "dead_letter") -> Table:
        """Only the rows for which the expression, or the function of a row, holds."""
        with at_place("filter"):
            known_on_error(on_error)
            if not isinstance(keep, pl.Expr) and not callable(keep):
                raise Misuse(f"{keep!r} is neither a Polars expression nor a function")
            checked = condition(self.schema, keep) if isinstance(keep, pl.Expr) else keep
            same = Project("filter", tuple((name, name) for name in self.schema.names), (), self.schema)
            return remade(self, "filter", same, checked, on_error)

    def drop(self, *columns: str) -> Table:
        """All columns but these; the key columns must stay."""
        with at_place("drop"):
            return remade(self, "drop", dropping(self.schema, columns), None, "fail")

    def rename(self, **new: str) -> Table:
        """The same columns, some of them under other names: ``rename(new="old")``."""
        with at_place("rename"):
            return self._kept("rename", renaming(self.wire, new))

    def key_by(self, *columns: str) -> GroupedTable:
        """The rows in groups of equal values in these columns, for `aggregate`; no columns: one group over all."""
        with at_place("key_by"):
            return GroupedTable(self, columns)

    def join(self, other: Table, on: str | None = None, how: str = "inner") -> Table:
        """One row for each primary key that both Tables have (or one, by ``how``): a Table with this one's keys.
        ``on``: a column of this Table that names the other's primary key."""
        with at_place("join"):
            if table_of(other, "join").flow is not self.flow:
                raise Misuse(f"the Tables belong to two flows, {self.flow.name!r} and {other.flow.name!r}")
            return join_tables(self, other, how) if on is None else join_foreign(self, other, on, how)

    def broadcast(self) -> Broadcast:
        """A further input of `join_table`: every partition of the join holds all of this Table."""
        return Broadcast(self, self.primary, table=True)

    def _planned(self, verb: str, expressions: tuple[Any, ...], named: Mapping[str, Any], keep: bool) -> Project:
        # Planned on the visible columns; `change` passes by.
        step = project(verb, self.schema, expressions_of(expressions, named), keep=keep, on_error="fail")
        if CHANGE in step.schema.names:
            raise Misuse(f"a Table has its own column {CHANGE!r}; choose another name")
        return step

    def _kept(self, verb: str, step: Project) -> Table:
        keys = self.keys_behind(step)
        table = Table(self.flow, self._stage(verb, step), step.schema, keys)
        if CHANGE not in table.wire.names:
            raise Misuse(f"a Table keeps its column {CHANGE!r}; else take .changes()")
        if self.versions is not None:
            table.versions = self.versions.projected(verb, step, keys)
        return table

    def keys_behind(self, step: Project) -> tuple[str, ...]:
        """What the key columns are called behind a projection; one that loses them is refused."""
        keys, _ = self._following(step)
        if keys is None:
            raise Misuse(f"a Table keeps its key columns unchanged: {', '.join(self.primary)}; else take .changes()")
        return keys

    def _only_adds(self, step: Project) -> bool:
        """New columns beside the old ones never make two different rows equal, as new values of old ones may. Where a
        row may fail, the Table that is made must know which rows it has."""
        calm = all(never_raises(one, self.schema) for one in step.computed)
        return calm and all((name, name) in step.columns for name in self.schema.names)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _STREAM_ONLY:
            with at_place(name):
                grouped = f"its rows in groups, .key_by(..).{name}(..), or " if name in _GROUPED else ""
                raise Misuse(f"a Table has no {name}; use {grouped}its Stream of changes: .changes().{name}(..)")
        raise AttributeError(f"a Table has no {name!r}")
