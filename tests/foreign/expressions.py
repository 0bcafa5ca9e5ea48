"""SQL expressions as Polars expressions, row by row.

Types decide some meanings (``7 / 2``, ``'2024-01-01' < at``), so a scope knows the columns' types and asks Polars for
the type of what it has made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from sqlglot import exp

from tests.foreign.casts import cast, duration, literal_as
from tests.foreign.types import polars_type
from tests.foreign.verdicts import NotSaid

Make = Callable[["Scope", Any], pl.Expr]


@dataclass(frozen=True)
class Column:
    """A column that SQL can name: where it stands in the Table or Stream."""

    qualifier: str
    name: str
    physical: str


class Scope:
    """The columns in sight, and expressions over them; `known` are expressions that are columns already."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        schema: dict[str, Any],
        known: dict[str, str] | None = None,
        null_is_false: bool = False,
    ) -> None:
        self.columns = columns
        self.null_is_false = null_is_false
        """Whether a comparison with null is false, as some engines have it."""
        self.schema = pl.Schema(schema)
        self.known = known or {}

    def column(self, node: exp.Column) -> Column:
        found = self.find(node)
        if not found:
            raise NotSaid("a column of an outer query or an unknown one")
        if len(found) > 1 and len({one.physical for one in found}) > 1:
            raise NotSaid("an ambiguous column name")
        return found[0]

    def find(self, node: exp.Column) -> list[Column]:
        qualifier, name = node.table.lower(), node.name.lower()
        return [one for one in self.columns if one.name == name and qualifier in ("", one.qualifier)]

    def sees(self, node: exp.Expression) -> bool:
        """Whether all columns of an expression are in sight."""
        return all(self.find(column) for column in node.find_all(exp.Column))

    def type_of(self, made: pl.Expr) -> pl.DataType:
        try:
            return pl.DataFrame(schema=self.schema).lazy().select(made.alias("x")).collect_schema()["x"]
        except pl.exceptions.PolarsError as error:
            raise NotSaid(f"types: {str(error).splitlines()[0][:60]}") from error

    def make(self, node: exp.Expression) -> pl.Expr:
        """The Polars expression of a SQL one."""
        text = fingerprint(node)
        if text in self.known:
            return pl.col(self.known[text])
        if isinstance(node, exp.Anonymous):
            maker = NAMED.get(node.name.lower())
            if maker is None:
                raise NotSaid(f"function {node.name.lower()}")
            return maker(self, node.expressions)
        for kind in type(node).__mro__:
            if kind in MAKERS:
                made = MAKERS[kind](self, node)
                compares = isinstance(node, (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE))
                return made.fill_null(False) if compares and self.null_is_false else made
        raise NotSaid(f"expression {type(node).__name__.lower()}")

    def pair(self, node: exp.Binary) -> tuple[pl.Expr, pl.Expr]:
        """Both sides of an operator; a literal takes the type of the other side."""
        return self.alike(node.left, node.right)

    def alike(self, left: exp.Expression, right: exp.Expression) -> tuple[pl.Expr, pl.Expr]:
        one, other = self.make(left), self.make(right)
        if _is_text(left) != _is_text(right):
            if _is_text(left):
                one = literal_as(left, self.type_of(other))
            else:
                other = literal_as(right, self.type_of(one))
        kinds = [self.type_of(side) for side in (one, other)]
        if (kinds[0] == pl.String) != (kinds[1] == pl.String) and pl.Null not in kinds:
            raise NotSaid("text beside another type")
        return one, other

    def is_integer(self, made: pl.Expr) -> bool:
        return self.type_of(made).is_integer()


def refuse(reason: str) -> pl.Expr:
    raise NotSaid(reason)


def fingerprint(node: exp.Expression) -> str:
    return node.sql().lower()


def _is_text(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _cast(scope: Scope, node: exp.Cast) -> pl.Expr:
    if node.to.this == exp.DataType.Type.DECIMAL and node.to.expressions:
        raise NotSaid("decimals of a given precision")
    new = polars_type(node.to)
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return literal_as(node.this, new)
    made = scope.make(node.this)
    return cast(made, scope.type_of(made), new)


def _literal(_scope: Scope, node: exp.Literal) -> pl.Expr:
    if node.is_string:
        return pl.lit(node.name)
    text = node.name
    if text.isdigit():
        return pl.lit(int(text), pl.Int64 if int(text) < 2**63 else None)
    return pl.lit(float(text))


def _interval(_scope: Scope, node: exp.Interval) -> pl.Expr:
    return pl.lit(duration(node), pl.Duration("us"))


def _divide(scope: Scope, node: exp.Binary) -> pl.Expr:
    left, right = scope.pair(node)
    if scope.is_integer(left) and scope.is_integer(right):
        return quotient(left, right)
    return pl.when(right != 0).then(left / right) if scope.null_is_false else left / right


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """SQL cuts towards zero, Polars rounds down."""
    return (left.abs() // right.abs()) * left.sign() * right.sign()


def _modulo(scope: Scope, node: exp.Mod) -> pl.Expr:
    left, right = scope.pair(node)
    if scope.is_integer(left) and scope.is_integer(right):
        return left - quotient(left, right) * right
    raise NotSaid("the remainder of a float")


def _case(scope: Scope, node: exp.Case) -> pl.Expr:
    made: Any = pl
    results = [one.args["true"] for one in node.args["ifs"]]
    default = node.args.get("default")
    values = _common(scope, [*results, *([default] if default is not None else [])])
    for one, value in zip(node.args["ifs"], values, strict=False):
        test = one.this if node.this is None else exp.EQ(this=node.this.copy(), expression=one.this.copy())
        made = made.when(scope.make(test)).then(value)
    return made.otherwise(values[-1] if default is not None else None)


def _common(scope: Scope, nodes: list[exp.Expression]) -> list[pl.Expr]:
    """Several values of which one is taken: text literals among them take the others' type."""
    typed = [scope.make(one) for one in nodes if not _is_text(one) and not isinstance(one, exp.Null)]
    kind = scope.type_of(typed[0]) if typed else pl.String()
    return [literal_as(one, kind) if _is_text(one) else scope.make(one) for one in nodes]


def _in(scope: Scope, node: exp.In) -> pl.Expr:
    if node.args.get("query") is not None or not node.expressions:
        raise NotSaid("a subquery in an expression")
    tests = [_equal(scope, exp.EQ(this=node.this.copy(), expression=one.copy())) for one in node.expressions]
    made = tests[0]
    for test in tests[1:]:
        made = made | test
    return made


def _equal(scope: Scope, node: exp.Binary) -> pl.Expr:
    left, right = scope.pair(node)
    return left == right


def _is(scope: Scope, node: exp.Is) -> pl.Expr:
    made = scope.make(node.this)
    what = node.expression
    if isinstance(what, exp.Null):
        return made.is_null()
    if isinstance(what, exp.Boolean):
        return made.eq_missing(pl.lit(bool(what.this)))
    raise NotSaid("IS " + what.sql().lower())


def _like(scope: Scope, node: exp.Binary) -> pl.Expr:
    pattern = node.expression
    if not _is_text(pattern):
        raise NotSaid("LIKE with a computed pattern")
    signs = {"%": "(?s:.*)", "_": "(?s:.)"}
    regex = "".join(signs.get(sign) or _escaped(sign) for sign in pattern.name)
    found = scope.make(node.this).str.contains(("(?i)" if isinstance(node, exp.ILike) else "") + f"^{regex}$")
    return ~found if node.args.get("negate") else found


def _escaped(sign: str) -> str:
    return sign if sign.isalnum() or sign == " " else "\\" + sign


def _concat(scope: Scope, nodes: list[exp.Expression], skip_null: bool) -> pl.Expr:
    parts = [text_of(scope, one) for one in nodes]
    return pl.concat_str(parts, ignore_nulls=skip_null)


def text_of(scope: Scope, node: exp.Expression) -> pl.Expr:
    made = scope.make(node)
    return cast(made, scope.type_of(made), pl.String())


def _substring(scope: Scope, node: exp.Substring) -> pl.Expr:
    start, length = node.args.get("start"), node.args.get("length")
    if not isinstance(start, exp.Literal) or start.name == "0":
        raise NotSaid("a substring from a computed place")
    return scope.make(node.this).str.slice(int(start.name) - 1, None if length is None else scope.make(length))


def _extract(scope: Scope, node: exp.Extract) -> pl.Expr:
    made, part = scope.make(node.expression), node.name.lower()
    parts: dict[str, Callable[[], pl.Expr]] = {
        "year": made.dt.year, "month": made.dt.month, "day": made.dt.day, "hour": made.dt.hour,
        "minute": made.dt.minute, "quarter": made.dt.quarter, "week": made.dt.week, "doy": made.dt.ordinal_day,
    }  # fmt: skip
    if part not in parts:
        raise NotSaid(f"extract {part}")
    return parts[part]().cast(pl.Int64)


def _trunc(scope: Scope, node: exp.Expression) -> pl.Expr:
    units = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "year": "1y"}
    unit = node.args["unit"].name.lower()
    if unit not in units:
        raise NotSaid(f"date_trunc {unit}")
    made = scope.make(node.this)
    if scope.type_of(made) == pl.Date:
        made = made.cast(pl.Datetime("us", "UTC"))
    return made.dt.truncate(units[unit])


def _round(scope: Scope, node: exp.Round) -> pl.Expr:
    made, decimals = scope.make(node.this), node.args.get("decimals")
    if decimals is not None and not isinstance(decimals, exp.Literal):
        raise NotSaid("round to a computed place")
    kind = scope.type_of(made)
    return (
        made
        if kind.is_integer()
        else made.round(int(decimals.name) if decimals is not None else 0, mode="half_away_from_zero")
    )


def _first_known(scope: Scope, node: exp.Coalesce) -> pl.Expr:
    return pl.coalesce(_common(scope, [node.this, *node.expressions]))


def _extreme(make: Callable[..., pl.Expr]) -> Make:
    def made(scope: Scope, node: exp.Expression) -> pl.Expr:
        return make(*_common(scope, [node.this, *node.expressions]))

    return made


def _operator(apply: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Make:
    return lambda scope, node: apply(*scope.pair(node))


def _of_one(apply: Callable[[pl.Expr], pl.Expr]) -> Make:
    return lambda scope, node: apply(scope.make(node.this))


def _between(scope: Scope, node: exp.Between) -> pl.Expr:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return scope.make(low) & scope.make(high)


def _nullif(scope: Scope, node: exp.Nullif) -> pl.Expr:
    left, right = scope.alike(node.this, node.expression)
    return pl.when((left == right).fill_null(False)).then(None).otherwise(left)


def _case_if(scope: Scope, node: exp.If) -> pl.Expr:
    default = node.args.get("false")
    values = _common(scope, [node.args["true"], *([default] if default is not None else [])])
    return pl.when(scope.make(node.this)).then(values[0]).otherwise(values[1] if default is not None else None)


MAKERS: dict[type, Make] = {
    exp.Column: lambda scope, node: pl.col(scope.column(node).physical),
    exp.Literal: _literal,
    exp.Boolean: lambda _scope, node: pl.lit(bool(node.this)),
    exp.Null: lambda _scope, _node: pl.lit(None),
    exp.Paren: lambda scope, node: scope.make(node.this),
    exp.Alias: lambda scope, node: scope.make(node.this),
    exp.Cast: _cast,
    exp.Interval: _interval,
    exp.Neg: _of_one(lambda one: -one),
    exp.Not: _of_one(lambda one: ~one),
    exp.Add: _operator(lambda one, other: one + other),
    exp.Sub: _operator(lambda one, other: one - other),
    exp.Mul: _operator(lambda one, other: one * other),
    exp.Div: _divide,
    exp.Mod: _modulo,
    exp.EQ: _equal,
    exp.NEQ: _operator(lambda one, other: one != other),
    exp.GT: _operator(lambda one, other: one > other),
    exp.GTE: _operator(lambda one, other: one >= other),
    exp.LT: _operator(lambda one, other: one < other),
    exp.LTE: _operator(lambda one, other: one <= other),
    exp.NullSafeEQ: _operator(lambda one, other: one.eq_missing(other)),
    exp.NullSafeNEQ: _operator(lambda one, other: one.ne_missing(other)),
    exp.And: _operator(lambda one, other: one & other),
    exp.Or: _operator(lambda one, other: one | other),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Case: _case,
    exp.If: _case_if,
    exp.Coalesce: _first_known,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme(pl.max_horizontal),
    exp.Least: _extreme(pl.min_horizontal),
    exp.Abs: _of_one(lambda one: one.abs()),
    exp.Ceil: _of_one(lambda one: one.ceil()),
    exp.Floor: _of_one(lambda one: one.floor()),
    exp.Round: _round,
    exp.Lower: _of_one(lambda one: one.str.to_lowercase()),
    exp.Upper: _of_one(lambda one: one.str.to_uppercase()),
    exp.Length: _of_one(lambda one: one.str.len_chars().cast(pl.Int64)),
    exp.Trim: lambda scope, node: scope.make(node.this).str.strip_chars(None if scope.null_is_false else " "),
    exp.DPipe: lambda scope, node: _concat(scope, [node.left, node.right], False),
    exp.ConcatWs: lambda _scope, _node: refuse("function concat_ws"),
    exp.Concat: lambda scope, node: _concat(scope, node.expressions, True),
    exp.Substring: _substring,
    exp.Extract: _extract,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _trunc,
}
NAMED: dict[str, Callable[[Scope, list[exp.Expression]], pl.Expr]] = {
    "len": lambda scope, given: scope.make(given[0]).str.len_chars().cast(pl.Int64),
    "ucase": lambda scope, given: scope.make(given[0]).str.to_uppercase(),
    "lcase": lambda scope, given: scope.make(given[0]).str.to_lowercase(),
    "ifnull": lambda scope, given: pl.coalesce(scope.make(given[0]), scope.make(given[1])),
    "as_value": lambda scope, given: pl.coalesce(scope.make(given[0])),
}
