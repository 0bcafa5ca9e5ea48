"""SQL's aggregate functions as seep's: the plain ones to keep, and what to compute from them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

import seep
from tests.foreign.expressions import Scope, fingerprint
from tests.foreign.verdicts import NotSaid

EXTRA = (exp.Filter, exp.WithinGroup)
"""Nodes around an aggregate function that belong to it."""


@dataclass(frozen=True)
class Kept:
    """The aggregates that an SQL function needs, by name, and its value made of them."""

    specs: dict[str, Any]
    value: pl.Expr


def aggregates_in(node: exp.Expression) -> list[exp.Expression]:
    """The outermost aggregate functions of an expression, those inside window functions and subqueries left out."""
    if isinstance(node, (exp.Window, exp.Subquery, exp.Exists)):
        return []
    if isinstance(node, (*EXTRA, exp.AggFunc)) or _named(node) in NAMED:
        return [node]
    return [found for child in node.iter_expressions() for found in aggregates_in(child)]


def _named(node: exp.Expression) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


NAMED = {
    *("earliest_by_offset", "latest_by_offset", "collect_list", "collect_set", "topk", "topkdistinct", "histogram"),
    *("count_distinct", "stddev_samp", "stddev_sample", "attr", "bool_and", "bool_or", "first_value", "last_value"),
}
"""Aggregate functions that sqlglot does not know as such."""


def kept(scope: Scope, node: exp.Expression, name: str) -> Kept:
    """What seep must keep for this function; its aggregates are named after `name`."""
    condition: pl.Expr | None = None
    if isinstance(node, exp.Filter):
        condition = scope.make(node.expression.this)
        node = node.this
    if isinstance(node, exp.WithinGroup):
        return _ordered_set(scope, node, condition, name)
    distinct = isinstance(node.this, exp.Distinct)
    if distinct and len(node.this.expressions) != 1:
        raise NotSaid("an aggregate over distinct combinations")
    argument = node.this.expressions[0] if distinct else node.this
    if isinstance(node, exp.Anonymous):
        argument = node.expressions[0] if node.expressions else None
    if isinstance(argument, exp.Order) or len(node.expressions if isinstance(node, exp.Anonymous) else []) > 1:
        raise NotSaid(f"{_title(node)} with an order or further arguments")
    if isinstance(node, exp.Count):
        return _count(scope, argument, distinct, condition, name)
    if argument is None or isinstance(argument, exp.Star):
        raise NotSaid(f"aggregate {_title(node)}")
    value = scope.make(argument)
    if condition is not None:
        value = pl.when(condition).then(value)
    return _simple(scope, node, value, distinct, name)


def _simple(scope: Scope, node: exp.Expression, value: pl.Expr, distinct: bool, name: str) -> Kept:
    title = _title(node)
    kind = scope.type_of(value)
    if title in ("min", "max"):
        if kind == pl.Boolean:
            raise NotSaid("min and max of booleans")
        return _one(name, (seep.minimum if title == "min" else seep.maximum)(value))
    if title in ("bool_and", "bool_or", "logicaland", "logicalor"):
        make = seep.minimum if "and" in title else seep.maximum
        return Kept({name: make(value.cast(pl.Int64))}, pl.col(name) == 1)
    if title == "count_distinct":
        return _one(name, seep.distinct(value))
    if distinct:
        raise NotSaid(f"{title} of distinct values")
    if title in ("sum", "avg", "stddevsamp", "stddev", "stddev_samp", "variance") and not kind.is_numeric():
        raise NotSaid(f"{title} of {kind}")
    if title == "sum":
        return _one(name, seep.total(value))
    if title == "avg":
        return _one(name, seep.mean(value))
    if scope.null_is_false and "std" in title:
        raise NotSaid("a standard deviation that is a variance")
    if title in ("variance", "stddevsamp", "stddev", "stddev_samp"):
        made = pl.col(name)
        return Kept({name: seep.variance(value)}, made if title == "variance" else made.sqrt())
    if title in ("variancepop", "stddevpop"):
        number = f"{name}_n"
        left_out = (pl.col(number) - 1).cast(pl.Float64) / pl.col(number)
        made = pl.when(pl.col(number) == 1).then(0.0).otherwise(pl.col(name) * left_out)
        made = pl.when(pl.col(number) > 0).then(made)
        specs = {name: seep.variance(value), number: seep.count(value)}
        return Kept(specs, made if title == "variancepop" else made.sqrt())
    if title == "earliest_by_offset":
        return _one(name, seep.first(value))
    if title == "latest_by_offset":
        return _one(name, seep.last(value))
    raise NotSaid(f"aggregate {title}")


def _count(scope: Scope, argument: exp.Expression | None, distinct: bool, condition: pl.Expr | None, name: str) -> Kept:
    if distinct:
        assert argument is not None
        value = scope.make(argument)
        return _one(name, seep.distinct(value if condition is None else pl.when(condition).then(value)))
    value = pl.lit(1) if argument is None or isinstance(argument, (exp.Star, exp.Literal)) else scope.make(argument)
    if condition is not None:
        return _one(name, seep.count(pl.when(condition).then(value)))
    if argument is None or isinstance(argument, (exp.Star, exp.Literal)):
        return _one(name, seep.count())
    return _one(name, seep.count(value))


def _ordered_set(scope: Scope, node: exp.WithinGroup, condition: pl.Expr | None, name: str) -> Kept:
    function, order = node.this, node.expression.expressions[0]
    if (
        not isinstance(function, exp.PercentileCont)
        or not isinstance(function.this, exp.Literal)
        or order.args.get("desc")
    ):
        raise NotSaid(f"aggregate {_title(function)}")
    value = scope.make(order.this).cast(pl.Float64)
    if condition is not None:
        value = pl.when(condition).then(value)
    return _one(name, seep.quantile(value, float(function.this.name)))


def _one(name: str, spec: Any) -> Kept:
    return Kept({name: spec}, pl.col(name))


def _title(node: exp.Expression) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()


def same(left: exp.Expression, right: exp.Expression) -> bool:
    return fingerprint(left) == fingerprint(right)
