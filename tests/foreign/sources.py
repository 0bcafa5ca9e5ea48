"""FROM as a relation: tables, views, subqueries, constants and table functions, and their joins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import polars as pl
from sqlglot import exp

from tests.foreign.casts import duration
from tests.foreign.expressions import Column, Scope
from tests.foreign.relation import Relation
from tests.foreign.verdicts import NotSaid

LONGEST = 2_000
"""So many constants are rows of a test; more are a benchmark."""


class Sources(ABC):
    """What a query reads; `base` gives the tables and views that have a name, `constant` those of given rows."""

    def __init__(
        self, base: Callable[[str], Relation], constant: Callable[[list[list[exp.Expression]], list[str]], Relation]
    ) -> None:
        self._base = base
        self._constant = constant
        self._with: dict[str, exp.Expression] = {}

    @abstractmethod
    def query(self, node: exp.Expression, keep_order: bool = False) -> Relation:
        """The rows of any query."""

    def source(self, node: exp.Expression) -> Relation:
        """A table, view, subquery or table function, under its alias."""
        alias = node.alias_or_name.lower()
        names = [one.name.lower() for one in (node.args.get("alias") or exp.TableAlias()).args.get("columns") or []]
        if isinstance(node, exp.Subquery):
            return self.query(node.this).renamed(alias, names)
        if isinstance(node, exp.Values):
            rows = [one.expressions if isinstance(one, exp.Tuple) else [one] for one in node.expressions]
            return self._constant(rows, [f"column{at}" for at in range(len(rows[0]))]).renamed(alias, names)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.ExplodingGenerateSeries):
            return self._series(node.this).renamed(alias, names)
        if not isinstance(node, exp.Table):
            raise NotSaid(f"from {type(node).__name__.lower()}")
        if isinstance(node.this, exp.Anonymous):
            return self._table_function(node.this).renamed(node.alias.lower() or node.this.name.lower(), names)
        if node.args.get("version") is not None or node.args.get("when") is not None:
            raise NotSaid("a join with a table as of now")
        if not isinstance(node.this, exp.Identifier):
            raise NotSaid(f"table function {type(node.this).__name__.lower()}")
        if node.name.lower() in self._with and not node.db:
            inner = self._with[node.name.lower()]
            inner_names = [one.name.lower() for one in inner.args["alias"].args.get("columns") or []]
            return self.query(inner.this).renamed(alias, names or inner_names)
        return self._base(node.name.lower()).renamed(alias, names)

    def _series(self, node: exp.ExplodingGenerateSeries) -> Relation:
        ends = [node.args.get("start"), node.args.get("end"), node.args.get("step") or exp.Literal.number(1)]
        try:
            start, end, step = (int(one.sql()) for one in ends)
        except ValueError as error:
            raise NotSaid("a series of other than numbers") from error
        numbers = range(start, end + (1 if step > 0 else -1), step) if step else range(0)
        if not 0 < len(numbers) <= LONGEST:
            raise NotSaid("an empty or a long series")
        return self._constant([[exp.Literal.number(one)] for one in numbers], ["generate_series"])

    def _table_function(self, node: exp.Anonymous) -> Relation:
        title = node.name.lower()
        if title not in ("tumble", "hop") or len(node.expressions) > (3 if title == "tumble" else 4):
            raise NotSaid(f"table function {title}")
        inner, column, *spans = node.expressions
        made = self.source(exp.Table(this=inner.this)) if isinstance(inner, exp.Column) else self.source(inner)
        at = made.scope.make(column)
        every = int(duration(spans[0]).total_seconds() * 1_000_000)
        size = int(duration(spans[-1]).total_seconds() * 1_000_000)
        if not every or size % every:
            raise NotSaid("hops that do not divide the window")
        copies = [_with_window(made, at, every, size, number) for number in range(size // every)]
        return copies[0] if len(copies) == 1 else copies[0].union(copies[1:])

    def _from(self, node: exp.Select) -> tuple[Relation, list[exp.Expression]]:
        """All sources joined, and the conditions of WHERE that are still to hold."""
        where = node.args.get("where")
        conditions = conjuncts(where.this) if where is not None else []
        if node.args.get("from_") is None:
            raise NotSaid("a query without FROM")
        made = self.source(node.args["from_"].this)
        for join in node.args.get("joins") or []:
            other = self.source(join.this)
            side, kind = (join.side or "").lower(), (join.kind or "").lower()
            if join.method or kind in ("semi", "anti") or side not in ("", "left", "right", "full"):
                raise NotSaid(f"join {join.method or kind or side}".lower())
            if join.args.get("using"):
                made = self._using(made, other, [one.name.lower() for one in join.args["using"]], side or "inner")
                continue
            on = join.args.get("on")
            # Of a list of tables the conditions stand in WHERE.
            given = conjuncts(on) if on is not None else [] if side else conditions
            pairs, rest = self._equal_pairs(made, other, given)
            if side and rest:
                raise NotSaid("an outer join with a further condition")
            made = self._join(made, other, pairs, side or "inner")
            if on is None:
                conditions = rest if not side else conditions
            else:
                for one in rest:
                    made = made.filter(made.scope.make(one))
        return made, conditions

    def _equal_pairs(
        self, left: Relation, right: Relation, given: list[exp.Expression]
    ) -> tuple[list[tuple[exp.Expression, exp.Expression]], list[exp.Expression]]:
        pairs, rest = [], []
        for one in given:
            if isinstance(one, exp.EQ) and not any(one.find_all(exp.Query)):
                a, b = left.scope, right.scope
                if _only(a, b, one.left) and _only(b, a, one.right):
                    pairs.append((one.left, one.right))
                    continue
                if _only(a, b, one.right) and _only(b, a, one.left):
                    pairs.append((one.right, one.left))
                    continue
            rest.append(one)
        return pairs, rest

    def _join(
        self, left: Relation, right: Relation, pairs: list[tuple[exp.Expression, exp.Expression]], how: str
    ) -> Relation:
        columns: list[tuple[str, str]] = []
        if not pairs:
            left, one = left.column_of(pl.lit(1).cast(pl.Int64), "one")
            right, other = right.column_of(pl.lit(1).cast(pl.Int64), "one")
            columns.append((one, other))
        for a, b in pairs:
            left, one = left.column_of(left.scope.make(a))
            right, other = right.column_of(right.scope.make(b))
            columns.append((one, other))
        return left.joined(right, columns, how)

    def _using(self, left: Relation, right: Relation, names: list[str], how: str) -> Relation:
        pairs: list[tuple[str, str]] = []
        merged: dict[str, tuple[str, str]] = {}
        for name in names:
            one, other = (side.scope.column(exp.column(name)).physical for side in (left, right))
            pairs.append((one, other))
            merged[name] = (one, other)
        made = left.joined(right, pairs, how)
        keys = {name: made.names.fresh(name) for name in names}
        made = made.extend({keys[name]: pl.coalesce(*(pl.col(one) for one in merged[name])) for name in names})
        rest = tuple(one for one in made.columns if one.name not in names)
        shown = tuple(Column("", name, keys[name]) for name in names)
        return replace(made, columns=(*shown, *rest))


def _with_window(made: Relation, at: pl.Expr, every: int, size: int, number: int) -> Relation:
    """The rows with the window that began so many hops before their own."""
    us = at.cast(pl.Datetime("us", "UTC")).to_physical().cast(pl.Int64)
    start = us - ((us % every) + every) % every - number * every
    names = made.names.fresh("window_start"), made.names.fresh("window_end")
    stamp = pl.Datetime("us", "UTC")
    wider = made.filter(at.is_not_null()).extend({names[0]: start.cast(stamp), names[1]: (start + size).cast(stamp)})
    return replace(
        wider, columns=(*made.columns, Column("", "window_start", names[0]), Column("", "window_end", names[1]))
    )


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return conjuncts(node.this)
    return [*conjuncts(node.left), *conjuncts(node.right)] if isinstance(node, exp.And) else [node]


def _only(here: Scope, there: Scope, node: exp.Expression) -> bool:
    """Whether an expression is about this side alone."""
    found = list(node.find_all(exp.Column))
    return bool(found) and here.sees(node) and not any(there.find(one) for one in found)
