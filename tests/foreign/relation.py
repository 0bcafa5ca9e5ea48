"""SQL's relations as seep's Tables: columns under unique names, so that nothing ever collides.

A Table keeps its key, a relation need not: key columns that SQL does not name any more stay as hidden ones. What SQL
says and no single verb does is put together here: a join of many with many pairs the lists of rows that both sides
have for a key, and `Unnest` makes them rows again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa

import seep
from tests.foreign.expressions import Column, Scope
from tests.foreign.verdicts import NotSaid

AT, GONE = "at", "gone"


class Names:
    """Column names that no relation has yet."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def fresh(self, hint: str = "c") -> str:
        return f"{hint}_{next(self._numbers)}"


class Unnest(seep.Operator):
    """Rows from lists of rows: all combinations of one row of each list, numbered within their key.

    A list that is null stands for a side without a match. How many rows the key had before is all that must be known to
    delete those that are too many now.
    """

    had = seep.ValueState(int, default=0)

    def __init__(self, keys: Sequence[str], lists: Sequence[str], columns: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self.lists = tuple(lists)
        self.columns = tuple(columns)

    def on_row(self, row: Any, ctx: Any) -> None:
        given = row.as_dict()
        key = {name: given[name] for name in self.keys}
        sides = [[{}] if given[name] is None else given[name] for name in self.lists]
        combined = [] if given["change"] == "delete" else list(itertools.product(*sides))
        for at, parts in enumerate(combined):
            values = {name: value for part in parts for name, value in _items(part)}
            ctx.emit({**dict.fromkeys(self.columns), **values, **key, AT: at, GONE: False})
        for at in range(len(combined), self.had.value):
            ctx.emit({**dict.fromkeys(self.columns), **key, AT: at, GONE: True})
        self.had.value = len(combined)


def _items(part: Any) -> Any:
    return part.items() if isinstance(part, dict) else part.as_dict().items()


@dataclass(frozen=True)
class Relation:
    """A Table and the columns that SQL sees in it."""

    table: Any
    columns: tuple[Column, ...]
    names: Names
    global_aggregate: bool = False
    """Whether SQL wants a row even of nothing: `aggregate` gives none for a group without rows."""
    known: dict[str, str] = field(default_factory=dict)
    """Expressions that are columns already."""
    below: tuple[Column, ...] = ()
    """What was in sight before the projection: ORDER BY may name it."""

    @property
    def scope(self) -> Scope:
        return Scope(self.columns, polars_schema(self.table.schema), self.known)

    def renamed(self, qualifier: str, names: Sequence[str] = ()) -> Relation:
        """The same rows under fresh names: a relation that is used twice must not meet itself."""
        fresh = {name: self.names.fresh(name.rsplit("_", 1)[0]) for name in self.table.schema.names}
        shown = [*names, *(one.name for one in self.columns[len(names) :])]
        columns = tuple(
            Column(qualifier, name, fresh[one.physical]) for name, one in zip(shown, self.columns, strict=True)
        )
        table = self.table.rename(**{new: old for old, new in fresh.items()})
        return replace(self, table=table, columns=columns, known={}, below=())

    def filter(self, keep: pl.Expr) -> Relation:
        return replace(self, table=self.table.filter(keep))

    def extend(self, made: dict[str, pl.Expr]) -> Relation:
        return replace(self, table=self.table.with_columns(**made)) if made else self

    def column_of(self, made: pl.Expr, hint: str = "x") -> tuple[Relation, str]:
        """The relation with a column of this value, and its name; a plain column is one already."""
        if made.meta.is_column():
            return self, made.meta.output_name()
        name = self.names.fresh(hint)
        return self.extend({name: made}), name

    def grouped(self, keys: Sequence[str], aggregates: dict[str, Any]) -> Relation:
        for name in keys:
            kind = self.table.schema.field(name).type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
                raise NotSaid("float and nested keys")
        return replace(self, table=self.table.key_by(*keys).aggregate(**aggregates), columns=(), known={}, below=())

    def unnested(self, keys: Sequence[str], lists: dict[str, pa.Schema]) -> Relation:
        """Rows from columns that are lists of rows of these schemas."""
        fields = {one.name: one for schema in lists.values() for one in schema}
        kept = {name: self.table.schema.field(name) for name in keys}
        schema = pa.schema(
            [
                *(one.with_nullable(True) for name, one in fields.items() if name not in kept),
                *kept.values(),
                pa.field(AT, pa.int64()),
                pa.field(GONE, pa.bool_()),
            ]
        )
        operator = Unnest(keys, list(lists), [name for name in fields if name not in kept])
        flat = self.table.changes().key_by(*keys).apply(operator, out=schema, on_error="fail")
        table = flat.key_by(*keys, AT).table(deleted=pl.col(GONE)).drop(GONE)
        position = self.names.fresh("at")
        return replace(self, table=table.rename(**{position: AT}), known={AT: position})

    def listed(self, keys: Sequence[str]) -> tuple[Relation, str]:
        """All rows of each key as one list."""
        name = self.names.fresh("rows")
        return self.grouped(keys, {name: seep.rows()}), name

    def best(self, keys: Sequence[str], n: int, by: list[pl.Expr], descending: bool) -> Relation:
        """The best rows of each key, with their place from 0 among the hidden columns (`known[AT]`)."""
        name = self.names.fresh("best")
        schema = self.table.schema
        listed = self.grouped(keys, {name: seep.top(n, by=by, descending=descending)})
        return replace(listed.unnested(keys, {name: schema}), columns=self.columns)

    def union(self, others: Sequence[Relation]) -> Relation:
        """All rows of these: their changes, keyed by the branch and what was the key there."""
        names = [self.names.fresh(one.name) for one in self.columns]
        parts = []
        for number, one in enumerate((self, *others)):
            if len(one.columns) != len(names):
                raise NotSaid("a union of different columns")
            changes = one.table.changes()
            key = pl.concat_str(
                [pl.lit(str(number)), *(_text(one.table.schema, key) for key in one.table.primary)], separator="|"
            )
            columns = {new: pl.col(old.physical) for new, old in zip(names, one.columns, strict=True)}
            parts.append(changes.select(**columns, origin=key, gone=pl.col("change") == "delete"))
        for part in parts[1:]:
            if part.schema.types != parts[0].schema.types:
                raise NotSaid("a union of different types")
        table = parts[0].union(*parts[1:]).key_by("origin").table(deleted=pl.col(GONE)).drop(GONE)
        table = table.rename(**{self.names.fresh("origin"): "origin"})
        columns = tuple(replace(one, physical=new) for one, new in zip(self.columns, names, strict=True))
        return Relation(table, columns, self.names, self.global_aggregate or any(o.global_aggregate for o in others))

    def joined(self, other: Relation, pairs: list[tuple[str, str]], how: str) -> Relation:
        """Rows with equal values in each pair of columns."""
        columns = (*self.columns, *other.columns)
        empty = self.global_aggregate or other.global_aggregate
        lefts, rights = tuple(left for left, _ in pairs), tuple(right for _, right in pairs)
        for left, right in pairs:
            if self.table.schema.field(left).type != other.table.schema.field(right).type:
                raise NotSaid("a join of different types")
        if rights == other.table.primary and how in ("inner", "left"):
            if lefts == self.table.primary:
                return self._by_key(other, pairs, how, None)
            if len(rights) == 1:
                return self._by_key(other, pairs, how, lefts[0])
        one, left_list = self.listed(lefts)
        two, right_list = other.listed(rights)
        both = replace(one, table=one.table.join(two.table, how=how), global_aggregate=empty)
        # Each row carries the key it was found by; of an unmatched one the other side's stays null.
        keys = [self.names.fresh("key") for _ in lefts]
        both = replace(both, table=both.table.rename(**dict(zip(keys, lefts, strict=True))))
        lists = {left_list: self.table.schema, right_list: other.table.schema}
        return replace(both.unnested(keys, lists), columns=columns)

    def _by_key(self, other: Relation, pairs: list[tuple[str, str]], how: str, on: str | None) -> Relation:
        """A join by the right's key, whose columns the verb leaves out: they are the left's where a row was found."""
        found = self.names.fresh("found")
        marked = other.table.with_columns(**{found: pl.lit(True)})
        table = self.table.join(marked, on=on, how=how)
        keys = {right: pl.when(pl.col(found)).then(pl.col(left)) for left, right in pairs}
        return replace(
            self,
            table=table.with_columns(**keys),
            columns=(*self.columns, *other.columns),
            global_aggregate=self.global_aggregate or other.global_aggregate,
            known={},
        )


def polars_schema(schema: pa.Schema) -> dict[str, Any]:
    frame = pl.from_arrow(schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return dict(frame.schema)


def _text(schema: pa.Schema, name: str) -> pl.Expr:
    """A key column as text of its own length, so that no two keys read the same."""
    kind = schema.field(name).type
    column = pl.col(name)
    if pa.types.is_binary(kind):
        column = column.bin.encode("hex")
    text = column.cast(pl.String)
    return pl.coalesce(pl.concat_str([text.str.len_bytes().cast(pl.String), text], separator=":"), pl.lit("null"))
