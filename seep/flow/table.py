"""Tables: one current row for each key. They travel as changes."""

from __future__ import annotations

from typing import Any, NoReturn

import polars as pl
import pyarrow as pa

from operators.expressions import condition, project
from operators.stateless import Project
from seep.errors import Misuse
from seep.flow.broadcasting import Broadcast
from seep.flow.dataset import Dataset, expressions_of
from seep.flow.logical import After
from seep.flow.place import at_place
from seep.flow.stream import Stream, dropping, renaming
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


class Table(Dataset):
    """One current row for each key; at most one change for each key and epoch."""

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

    def select(self, *expressions: Any, **named: Any) -> Table:
        """Only these columns; the key columns must be among them."""
        with at_place("select"):
            narrow = self._projected("select", expressions_of(expressions, named), keep=False)
            return remade(narrow, "select", None)

    def with_columns(self, *expressions: Any, **named: Any) -> Table:
        """All columns, and these besides."""
        with at_place("with_columns"):
            wider = self._projected("with_columns", expressions_of(expressions, named), keep=True)
            # New columns beside the old ones never make two different rows equal; new values of old ones may.
            return (
                wider
                if wider.schema.names[: len(self.schema)] == self.schema.names and self._only_adds(wider)
                else remade(wider, "with_columns", None)
            )

    def filter(self, keep: pl.Expr) -> Table:
        """Only the rows for which the expression holds."""
        with at_place("filter"):
            if not isinstance(keep, pl.Expr):
                raise Misuse("a Table is filtered by a Polars expression; for a function take .changes()")
            return remade(self, "filter", condition(self.schema, keep))

    def drop(self, *columns: str) -> Table:
        """All columns but these; the key columns must stay."""
        with at_place("drop"):
            return remade(self._kept("drop", dropping(self.wire, columns)), "drop", None)

    def rename(self, **new: str) -> Table:
        """``rename(new="old")``."""
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

    def _projected(self, verb: str, given: list[pl.Expr], keep: bool) -> Table:
        # Planned on the visible columns; `change` passes by.
        step = project(verb, self.schema, given, keep=keep, on_error="fail")
        if CHANGE in step.schema.names:
            raise Misuse(f"a Table has its own column {CHANGE!r}; choose another name")
        schema = step.schema.append(self.wire.field(CHANGE))
        return self._kept(verb, Project(verb, (*step.columns, (CHANGE, CHANGE)), step.computed, schema, "fail"))

    def _kept(self, verb: str, step: Project) -> Table:
        keys, _ = self._following(step)
        table = Table(self.flow, self._stage(verb, step), step.schema, keys)
        if keys is None or CHANGE not in table.wire.names:
            raise Misuse(f"a Table keeps its key columns unchanged: {', '.join(self.primary)}; else take .changes()")
        if self.versions is not None:
            table.versions = self.versions.projected(verb, step, keys)
        return table

    def _only_adds(self, wider: Table) -> bool:
        assert isinstance(wider.lineage, After)
        step = wider.lineage.stage.step
        return isinstance(step, Project) and all((name, name) in step.columns for name in self.schema.names)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _STREAM_ONLY:
            with at_place(name):
                raise Misuse(f"a Table has no {name}; use its Stream of changes: .changes().{name}(..)")
        raise AttributeError(f"a Table has no {name!r}")
