"""SELECT as a flow of Tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
from sqlglot import exp

import seep
from tests.foreign.aggregates import aggregates_in, kept
from tests.foreign.expressions import Column, fingerprint
from tests.foreign.relation import AT, Relation
from tests.foreign.sources import Sources, conjuncts
from tests.foreign.verdicts import NotSaid

MANY = 100_000
"""A rank without a limit: more rows than any case has."""


@dataclass(frozen=True)
class Ordering:
    """By which column the rows of a result are sorted."""

    physical: str
    descending: bool
    nulls_first: bool


class Queries(Sources):
    """Makes relations of SELECTs; `base` gives the tables and views that have a name."""

    def fresh(self) -> Queries:
        """For a view: it sees no WITH of the query that reads it."""
        return Queries(self._base, self._constant)

    def ordered(self, node: exp.Expression) -> tuple[Relation, list[Ordering]]:
        """A query's rows, and the order in which it wants to see them."""
        order = node.args.get("order")
        if node.args.get("limit") is not None or node.args.get("offset") is not None or order is None:
            made = self.query(node)
            return (made, []) if order is None else self._shown_order(node, made, order)
        made = self.query(node, keep_order=True)
        return self._shown_order(node, made, order)

    def _shown_order(self, node: exp.Expression, made: Relation, order: exp.Order) -> tuple[Relation, list[Ordering]]:
        orderings = []
        for one in order.expressions:
            value = self._order_value(made, one.this)
            made, physical = made.column_of(value, "order")
            orderings.append(Ordering(physical, bool(one.args.get("desc")), _nulls_first(one)))
        return made, orderings

    def _order_value(self, made: Relation, node: exp.Expression) -> pl.Expr:
        if isinstance(node, exp.Literal) and not node.is_string:
            return pl.col(made.columns[int(node.name) - 1].physical)
        if not made.scope.sees(node) and made.below:
            return replace(made, columns=made.below).scope.make(node)
        return made.scope.make(node)

    # --- shapes --------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expression, keep_order: bool = False) -> Relation:
        """The rows of any query; `keep_order`: its ORDER BY is looked at elsewhere."""
        known = dict(self._with)
        try:
            clause = node.args.get("with_")
            if clause is not None:
                if clause.args.get("recursive"):
                    raise NotSaid("a recursive query")
                for one in clause.expressions:
                    self._with[one.alias.lower()] = exp.Subquery(this=one.this, alias=one.args["alias"])
            if isinstance(node, exp.Subquery):
                made = self.query(node.this)
            elif isinstance(node, exp.Union):
                made = self._union(node)
            elif isinstance(node, (exp.Except, exp.Intersect)):
                made = self._both(node)
            elif isinstance(node, exp.Select):
                return self._limited(node, self._select(node), keep_order)
            else:
                raise NotSaid(f"query {type(node).__name__.lower()}")
            return self._limited(node, made, keep_order)
        finally:
            self._with = known

    def _union(self, node: exp.Union) -> Relation:
        if node.args.get("by_name"):
            raise NotSaid("a union by names")
        parts, distinct = [node.right], bool(node.args.get("distinct"))
        left = node.left
        while isinstance(left, exp.Union) and bool(left.args.get("distinct")) == distinct:
            parts.append(left.right)
            left = left.left
        made = [self.query(one) for one in (left, *reversed(parts))]
        union = made[0].union(made[1:])
        return _distinct(union) if distinct else union

    def _both(self, node: exp.SetOperation) -> Relation:
        if not node.args.get("distinct"):
            raise NotSaid(f"{type(node).__name__.lower()} all")
        left, right = _distinct(self.query(node.left)), _distinct(self.query(node.right))
        # Null equals null here, but in no join: a count of each side for every row tells the same.
        sides = [
            replace(one.extend({one.names.fresh("side"): pl.lit(side)}), columns=one.columns)
            for side, one in enumerate((left, right))
        ]
        marked = [replace(one, columns=(*one.columns, Column("", "side", one.table.schema.names[-1]))) for one in sides]
        union = marked[0].union([marked[1]])
        side = union.columns[-1].physical
        keys = [one.physical for one in union.columns[:-1]]
        names = union.names.fresh("left"), union.names.fresh("right")
        counted = union.grouped(
            keys,
            {
                names[0]: seep.count(pl.when(pl.col(side) == 0).then(1)),
                names[1]: seep.count(pl.when(pl.col(side) == 1).then(1)),
            },
        )
        there = pl.col(names[1]) > 0 if isinstance(node, exp.Intersect) else pl.col(names[1]) == 0
        return replace(counted.filter((pl.col(names[0]) > 0) & there), columns=union.columns[:-1])

    # --- SELECT --------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> Relation:
        made, conditions = self._from(node)
        for one in conditions:
            made = self._where(made, one)
        if node.args.get("qualify") is not None or node.args.get("laterals"):
            raise NotSaid("lateral or qualify")
        projections = list(node.expressions)
        having = node.args.get("having")
        extra = [having.this] if having is not None else []
        for one in [*projections, *extra]:
            made = self._scalars(made, one)
        functions = [found for one in [*projections, *extra] for found in aggregates_in(one)]
        if node.args.get("group") is not None or functions:
            made = self._grouped(node, made, projections, functions)
        if having is not None:
            made = made.filter(made.scope.make(having.this))
        made = self._ranked(made, projections)
        shown = self._project(made, projections)
        distinct = node.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                raise NotSaid("distinct on")
            shown = _distinct(shown)
        return shown

    def _where(self, made: Relation, condition: exp.Expression) -> Relation:
        negated = isinstance(condition, exp.Not)
        inner = condition.this if negated else condition
        if isinstance(inner, exp.Exists):
            return self._semi(made, inner.this, None, negated)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            if negated:
                raise NotSaid("not in (a query)")
            return self._semi(made, inner.args["query"].this, inner.this, negated)
        made = self._scalars(made, condition)
        return made.filter(made.scope.make(condition))

    def _semi(self, made: Relation, query: exp.Expression, member: exp.Expression | None, negated: bool) -> Relation:
        """Rows for which the query has one (or none): it is grouped by what must be equal, and joined."""
        if not isinstance(query, exp.Select) or query.args.get("limit") is not None:
            raise NotSaid("a subquery of another shape")
        pairs: list[tuple[exp.Expression, exp.Expression]]
        if member is not None:
            inner = self.query(query)
            pairs = [(member, exp.column(inner.columns[0].name))]
            inner = replace(inner, columns=inner.columns[:1])
        else:
            if query.args.get("group") is not None or any(aggregates_in(one) for one in query.expressions):
                raise NotSaid("exists with aggregates")
            bare = query.copy()
            where = bare.args.get("where")
            bare.set("where", None)
            inner, _ = self._from(bare)
            pairs, rest = self._equal_pairs(made, inner, conjuncts(where.this) if where is not None else [])
            for one in rest:
                if not inner.scope.sees(one):
                    raise NotSaid("a correlated subquery")
                inner = self._where(inner, one)
        found = made.names.fresh("found")
        rights = []
        for _, b in pairs:
            inner, name = inner.column_of(inner.scope.make(b))
            rights.append(name)
        if not rights:
            inner, name = inner.column_of(pl.lit(1).cast(pl.Int64), "one")
            rights.append(name)
        grouped = inner.grouped(rights, {found: seep.count()})
        left = made
        lefts = []
        for a, _ in pairs or [(exp.Literal.number(1), exp.Null())]:
            left, name = left.column_of(left.scope.make(a))
            lefts.append(name)
        both = left.joined(grouped, list(zip(lefts, rights, strict=True)), "left" if negated else "inner")
        both = replace(both, columns=made.columns)
        return both.filter(pl.col(found).is_null()) if negated else both

    def _scalars(self, made: Relation, node: exp.Expression) -> Relation:
        """Each subquery that stands for a value becomes a column."""
        if isinstance(node, exp.Exists) or any(node.find_all(exp.Exists)):
            raise NotSaid("exists inside an expression")
        for sub in [one for one in node.find_all(exp.Subquery) if one.find_ancestor(exp.Subquery) is None]:
            if fingerprint(sub) in made.known:
                continue
            select = sub.this
            if not isinstance(select, exp.Select) or select.args.get("group") is not None:
                raise NotSaid("a subquery of another shape")
            if not any(aggregates_in(one) for one in select.expressions):
                raise NotSaid("a scalar subquery that may have several rows")
            value = self.query(select)
            joined = self._join(made, replace(value, columns=()), [], "left")
            made = replace(
                joined, columns=made.columns, known={**made.known, fingerprint(sub): value.columns[0].physical}
            )
        return made

    def _grouped(
        self,
        node: exp.Select,
        made: Relation,
        projections: list[exp.Expression],
        functions: list[exp.Expression],
    ) -> Relation:
        group = node.args.get("group")
        if group is not None and any(group.args.get(one) for one in ("rollup", "cube", "grouping_sets")):
            raise NotSaid("grouping sets")
        aliases = {one.alias.lower(): one.this for one in projections if isinstance(one, exp.Alias)}
        keys: list[str] = []
        known: dict[str, str] = {}
        columns: list[Column] = []
        for one in group.expressions if group is not None else []:
            if isinstance(one, (exp.Tuple, exp.Anonymous)) and not isinstance(one, exp.Anonymous):
                raise NotSaid("grouping sets")
            if isinstance(one, exp.Literal):
                one = projections[int(one.name) - 1].unalias()
            elif isinstance(one, exp.Column) and not made.scope.find(one) and one.name.lower() in aliases:
                one = aliases[one.name.lower()]
            value = made.scope.make(one)
            made, name = made.column_of(value)
            keys.append(name)
            known[fingerprint(one)] = name
            columns += [column for column in made.columns if column.physical == name]
        specs: dict[str, object] = {}
        values: dict[str, pl.Expr] = {}
        texts: dict[str, str] = {}
        for function in functions:
            text = fingerprint(function)
            if text in texts:
                continue
            name = made.names.fresh("agg")
            needed = kept(made.scope, function, name)
            specs |= needed.specs
            if str(needed.value) != str(pl.col(name)):
                shown = made.names.fresh("agg")
                values[shown] = needed.value
                name = shown
            texts[text] = name
        unique = list(dict.fromkeys(keys))
        scalars = {text: name for text, name in made.known.items() if name in unique}
        grouped = made.grouped(unique, specs or {made.names.fresh("n"): seep.count()}).extend(values)
        return replace(
            grouped,
            columns=tuple(columns),
            known={**scalars, **known, **texts},
            global_aggregate=made.global_aggregate or not keys,
        )

    def _ranked(self, made: Relation, projections: list[exp.Expression]) -> Relation:
        windows = {fingerprint(found): found for one in projections for found in one.find_all(exp.Window)}
        if not windows:
            return made
        for text, window in windows.items():
            if not isinstance(window.this, exp.RowNumber):
                raise NotSaid(f"window function {_title(window.this)}")
            keys = []
            for one in window.args.get("partition_by") or []:
                made, name = made.column_of(made.scope.make(one))
                keys.append(name)
            order = window.args.get("order")
            if order is None:
                raise NotSaid("a rank without an order")
            known = made.known
            made = self._best(made, list(dict.fromkeys(keys)), MANY, order)
            rank = made.names.fresh("rank")
            made = made.extend({rank: pl.col(made.known[AT]) + 1})
            made = replace(made, known={**known, text: rank})
        return made

    def _best(self, made: Relation, keys: list[str], n: int, order: exp.Order) -> Relation:
        descending = bool(order.expressions[0].args.get("desc"))
        by: list[pl.Expr] = []
        for one in order.expressions:
            value = self._order_value(made, one.this)
            kind = made.scope.type_of(value)
            flip = bool(one.args.get("desc")) != descending
            if flip and not kind.is_numeric() and not kind.is_temporal():
                raise NotSaid("texts in both directions of one order")
            null_is_greater = _nulls_first(one) == descending
            by.append((value.is_null() if null_is_greater else value.is_not_null()).cast(pl.Int64))
            if flip:
                value = -(value if kind.is_numeric() else value.to_physical().cast(pl.Int64))
            elif kind == pl.Boolean:
                value = value.cast(pl.Int64)
            zero: object = "" if kind == pl.String else 0
            by.append(value.fill_null(pl.lit(zero) if flip or not kind.is_temporal() else pl.lit(0).cast(kind)))
        return made.best(keys, n, by, descending)

    def _limited(self, node: exp.Expression, made: Relation, keep_order: bool) -> Relation:
        limit, offset, order = (node.args.get(one) for one in ("limit", "offset", "order"))
        if limit is None and offset is None:
            return made
        if order is None:
            raise NotSaid("limit without an order")
        skipped = _whole(offset.expression) if offset is not None else 0
        number = _whole(limit.expression) if limit is not None and isinstance(limit, exp.Limit) else None
        if number is None and limit is not None:
            raise NotSaid("fetch with ties")
        best = self._best(made, [], MANY if number is None else max(1, number + skipped), order)
        at = pl.col(best.known[AT])
        best = best.filter((at >= skipped) & (at < skipped + (MANY if number is None else number)))
        return replace(best, known={})

    def _project(self, made: Relation, projections: list[exp.Expression]) -> Relation:
        columns: list[Column] = []
        fresh: dict[str, pl.Expr] = {}
        for one in projections:
            inner = one.unalias()
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                wanted = inner.table.lower() if isinstance(inner, exp.Column) else ""
                star = inner.this if isinstance(inner, exp.Column) else inner
                left_out = {made.scope.column(exp.column(each.name, each.args.get("table") or None)).physical
                            for each in star.args.get("except_") or []}  # fmt: skip
                shown = [each for each in made.columns if wanted in ("", each.qualifier)]
                columns += [replace(each, qualifier="") for each in shown if each.physical not in left_out]
                continue
            value = made.scope.make(inner)
            name = one.alias_or_name.lower() or _title(inner)
            if value.meta.is_column():
                columns.append(Column("", name, value.meta.output_name()))
                continue
            physical = made.names.fresh(name if name.isidentifier() else "x")
            if made.scope.type_of(value) == pl.Null:
                raise NotSaid("a column of nulls without a type")
            fresh[physical] = value
            columns.append(Column("", name, physical))
        return replace(made.extend(fresh), columns=tuple(columns), below=made.columns)


def _distinct(made: Relation) -> Relation:
    unique = list(dict.fromkeys(one.physical for one in made.columns))
    return replace(made.grouped(unique, {made.names.fresh("n"): seep.count()}), columns=made.columns)


def _whole(node: exp.Expression) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        raise NotSaid("a computed limit")
    return int(node.name)


def _nulls_first(node: exp.Expression) -> bool:
    return bool(node.args.get("nulls_first"))


def _title(node: exp.Expression) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
