"""The aggregates a user names in `aggregate` and `window`: what each means, which types it takes and gives.

All skip nulls; a key whose values were all null gives null (a count gives 0). Totals of integers are exact and
checked when a value is given out, so an overflow stops the flow instead of wrapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from operators.accumulators import (
    Accumulator,
    Count,
    DecimalExtreme,
    DecimalMean,
    DecimalTotal,
    ExactMean,
    ExactTotal,
    FloatExtreme,
    FloatMean,
    FloatTotal,
    IntegerExtreme,
    TextExtreme,
)
from operators.collected import Distinct, Quantile
from operators.listed import Rows, Top
from operators.ordered import Edge
from operators.reproducible import AnyOrderMean, AnyOrderTotal, AnyOrderVariance
from operators.sketches import DistinctSketch, QuantileSketch
from operators.spread import ExactVariance, FloatVariance
from operators.stateless import columns_read, evaluated
from seep.errors import Misuse
from seep.model.schema import normalise, physical_type

_BY = "__by"
"""Beside the rows of `top`: the values of its expressions, numbered."""


@dataclass(frozen=True, eq=False)
class Spec:
    """One aggregate: its name, and the column or expression it reads."""

    aggregate: str
    column: str | pl.Expr | None = None
    wide: bool = False
    approx: bool = False
    share: float = 0.5
    """Of a quantile: which."""
    limit: int = 0
    """Of `top`: how many rows, ..."""
    by: tuple[str | pl.Expr, ...] = ()
    descending: bool = True
    any_order: bool = False
    """Of floats: must the result be the same in whatever order parts are merged?"""

    def in_any_order(self) -> Spec:
        """The same where parts are merged in an order that depends on the cut into epochs. A user's own aggregate does
        as its `merge` does."""
        return replace(self, any_order=True) if type(self) is Spec else self

    def __post_init__(self) -> None:
        if not isinstance(self.column, str | pl.Expr | None):
            raise Misuse(f"{self.aggregate}({self.column!r}): give a column name or a Polars expression")

    @property
    def whole(self) -> bool:
        """Does it read whole rows?"""
        return self.aggregate in ("rows", "top")

    @property
    def reads_time(self) -> bool:
        """Does its result depend on the time of each row?"""
        return self.aggregate in ("first", "last", "rows")

    @property
    def foreign(self) -> bool:
        """Does it run Polars, or code of a user?"""
        return bool(self.expressions(""))

    @property
    def own(self) -> bool:
        """Is it a user's, so that it may refuse a row?"""
        return False

    def expressions(self, name: str) -> dict[str, pl.Expr]:
        """What Polars has to compute for an aggregate of this name."""
        found = {name: self.column} if isinstance(self.column, pl.Expr) else {}
        return found | {f"{name}.{key}": by for key, by in self._computed().items()}

    def _computed(self) -> dict[str, pl.Expr]:
        return {f"{_BY}{at}": by for at, by in enumerate(self.by) if isinstance(by, pl.Expr)}

    def reads(self, schema: pa.Schema) -> set[str]:
        """The columns of the rows that it needs, but for their time."""
        if self.whole:
            return set(schema.names)
        if isinstance(self.column, pl.Expr):
            return columns_read(self.column)
        return set() if self.column is None else {self.column}

    def input_type(self, schema: pa.Schema) -> pa.DataType | None:
        """The type of the values; None for `count()`, which needs none."""
        return None if self.column is None else self._type_of(self.column, schema)

    def _type_of(self, column: str | pl.Expr, schema: pa.Schema) -> pa.DataType:
        if isinstance(column, str):
            if schema.get_field_index(column) < 0:
                raise Misuse(f"{self} reads a column that is not there; there are {', '.join(schema.names)}")
            return physical_type(schema.field(column).type)
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return evaluate(empty, {"value": column})["value"].type

    def fields(self, schema: pa.Schema, time_column: str | None) -> tuple[list[pa.Field], list[pa.Field]]:
        """Of whole rows: the columns that show, and those that are kept beside them."""
        # Where no plain timestamp column holds the time it travels in one that no user has named.
        unnamed = time_column if time_column is not None and time_column.startswith("__") else None
        shown = [pa.field(field.name, physical_type(field.type)) for field in schema if field.name != unnamed]
        hidden = [pa.field(name, self._type_of(by, schema)) for name, by in self._computed().items()]
        if self.reads_time and unnamed is not None:
            hidden.append(schema.field(unnamed))
        return shown, hidden

    def output_type(self, schema: pa.Schema) -> pa.DataType:
        return self.accumulator(schema).output

    def accumulator(self, schema: pa.Schema, time_column: str | None = None) -> Accumulator:
        """The memory this aggregate needs over rows of this schema."""
        if self.whole:
            return _listed(self, schema, time_column)
        kind = self.input_type(schema)
        if self.aggregate == "count":
            return Count(kind or pa.null(), pa.int64())
        if kind is None:
            raise Misuse(f"{self.aggregate} needs a column")
        made = _MAKERS[self.aggregate](kind, self)
        if made is None:
            raise Misuse(f"{self} cannot take a {kind}; cast the column to a type it can")
        return made

    def __str__(self) -> str:
        given = [] if self.column is None else [repr(self.column) if isinstance(self.column, str) else str(self.column)]
        given += [str(self.share)] if self.aggregate == "quantile" else []
        given += [str(self.limit), f"by={', '.join(map(str, self.by))}"] if self.aggregate == "top" else []
        given += ["approx=True"] if self.approx else []
        return f"{self.aggregate}({', '.join(given)})"


def _sum(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    mean = spec.aggregate == "mean"
    if spec.wide and not pa.types.is_integer(kind):
        raise Misuse(f"{spec}: wide=True is for integers, and the column is a {kind}; leave it out")
    if pa.types.is_floating(kind):
        total, average = (AnyOrderTotal, AnyOrderMean) if spec.any_order else (FloatTotal, FloatMean)
        return average(kind, pa.float64()) if mean else total(kind, pa.float64())
    if pa.types.is_integer(kind):
        wide = pa.decimal128(38, 0) if spec.wide else pa.int64()
        return ExactMean(kind, pa.float64()) if mean else ExactTotal(kind, wide)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return DecimalMean(kind, pa.float64()) if mean else DecimalTotal(kind, pa.decimal128(38, kind.scale))
    if pa.types.is_duration(kind) and not mean:
        return ExactTotal(kind, pa.duration("us"))
    return None


def _extreme(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    greatest = spec.aggregate == "maximum"
    if pa.types.is_floating(kind):
        return FloatExtreme(kind, greatest)
    if pa.types.is_decimal128(kind):
        return DecimalExtreme(kind, greatest)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return TextExtreme(kind, greatest)
    checks = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_temporal)
    if any(check(kind) for check in checks):
        return IntegerExtreme(kind, greatest)
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _variance(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    if pa.types.is_integer(kind):
        return ExactVariance(kind, pa.float64())
    floats = AnyOrderVariance if spec.any_order else FloatVariance
    return floats(kind, pa.float64()) if _is_number(kind) else None


def _quantile(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    if not _is_number(kind):
        return None
    return QuantileSketch(kind, spec.share) if spec.approx else Quantile(kind, spec.share)


def _distinct(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    if pa.types.is_nested(kind) or (pa.types.is_decimal(kind) and kind.precision > 38):
        return None
    return DistinctSketch(kind) if spec.approx else Distinct(kind)


def _edge(kind: pa.DataType, spec: Spec) -> Accumulator:
    return Edge(kind, spec.aggregate == "last")


def _listed(spec: Spec, schema: pa.Schema, time_column: str | None) -> Accumulator:
    shown, hidden = spec.fields(schema, time_column)
    if spec.aggregate == "rows":
        return Rows([*shown, *hidden], len(hidden), time_column)
    names = [f"{_BY}{at}" if isinstance(by, pl.Expr) else by for at, by in enumerate(spec.by)]
    for by in spec.by:
        kind = spec._type_of(by, schema)
        if pa.types.is_nested(kind):
            raise Misuse(f"{spec} cannot compare a {kind}; choose one of its fields")
    return Top([*shown, *hidden], len(hidden), spec.limit, names, spec.descending)


_MAKERS: Mapping[str, Callable[[pa.DataType, Spec], Accumulator | None]] = {
    "total": _sum,
    "mean": _sum,
    "minimum": _extreme,
    "maximum": _extreme,
    "variance": _variance,
    "quantile": _quantile,
    "median": _quantile,
    "distinct": _distinct,
    "first": _edge,
    "last": _edge,
}


def evaluate(record: pa.RecordBatch, expressions: dict[str, pl.Expr]) -> dict[str, pa.Array]:
    """The values of Polars expressions over a record, one for each row, in physical form."""
    if not expressions:
        return {}
    # Only the columns that are read: giving Polars a string column copies it.
    roots = set[str]().union(*map(columns_read, expressions.values()))
    unknown = sorted(roots.difference(record.schema.names))
    if unknown:
        raise Misuse(f"an expression reads {unknown[0]!r}, which is not among {', '.join(record.schema.names)}")
    names = [name for name in record.schema.names if name in roots] or record.schema.names[:1]
    frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([record.select(names)])))
    try:
        values = evaluated(frame, [e.alias(f"__{name}") for name, e in expressions.items()])
    except pl.exceptions.PolarsError as problem:
        raise Misuse(f"an expression fails: {str(problem).splitlines()[0]}") from problem
    table = values.select([f"__{name}" for name in expressions]).to_arrow().combine_chunks()
    plain = normalise(pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks()))
    return dict(zip(expressions, plain.columns, strict=True))


def count(column: str | pl.Expr | None = None) -> Spec:
    """How many rows there are; with a column, how many of its values are not null.

    >>> str(count())
    'count()'
    """
    return Spec("count", column)


def total(column: str | pl.Expr, *, wide: bool = False) -> Spec:
    """The sum. Integers give int64, and an overflow stops the flow; ``wide=True`` gives decimal128(38, 0).

    >>> str(total("amount"))
    "total('amount')"
    """
    return Spec("total", column, wide)


def mean(column: str | pl.Expr) -> Spec:
    """The arithmetic mean, float64.

    >>> str(mean("amount"))
    "mean('amount')"
    """
    return Spec("mean", column)


def minimum(column: str | pl.Expr) -> Spec:
    """The least value; NaN is greater than every number.

    >>> minimum("at").output_type(pa.schema({"at": pa.date32()}))
    DataType(date32[day])
    """
    return Spec("minimum", column)


def maximum(column: str | pl.Expr) -> Spec:
    """The greatest value; NaN is greater than every number.

    >>> maximum("name").output_type(pa.schema({"name": pa.string()}))
    DataType(string)
    """
    return Spec("maximum", column)


def variance(column: str | pl.Expr) -> Spec:
    """The sample variance (n - 1), float64; null for fewer than two values.

    >>> str(variance("amount"))
    "variance('amount')"
    """
    return Spec("variance", column)


def median(column: str | pl.Expr) -> Spec:
    """The value in the middle, float64; of an even number the mean of the two. Keeps every value.

    >>> str(median("amount"))
    "median('amount')"
    """
    return Spec("median", column)


def quantile(column: str | pl.Expr, q: float, *, approx: bool = False) -> Spec:
    """The value below which the share ``q`` of all lies, float64, by linear interpolation. Keeps every value;
    ``approx=True`` keeps a sketch, which knows each value to within 0.8 %.

    >>> str(quantile("amount", 0.9, approx=True))
    "quantile('amount', 0.9, approx=True)"
    """
    given: object = q
    if not isinstance(given, float | int) or not 0 <= q <= 1:
        raise Misuse(f"quantile({column!r}, {q!r}): give a share between 0 and 1, such as 0.9")
    return Spec("quantile", column, approx=approx, share=float(q))


def distinct(column: str | pl.Expr, *, approx: bool = False) -> Spec:
    """How many values differ, not counting null. Keeps each once; ``approx=True`` keeps a sketch of at most 4 KiB with
    a standard error of 1.6 %.

    >>> str(distinct("visitor"))
    "distinct('visitor')"
    """
    return Spec("distinct", column, approx=approx)


def first(column: str | pl.Expr) -> Spec:
    """The value with the least event time; of several, and without event time, the first to arrive.

    >>> str(first("price"))
    "first('price')"
    """
    return Spec("first", column)


def last(column: str | pl.Expr) -> Spec:
    """The value with the greatest event time; of several, and without event time, the last to arrive.

    >>> str(last("price"))
    "last('price')"
    """
    return Spec("last", column)


def top(n: int, by: str | pl.Expr | Sequence[str | pl.Expr], descending: bool = True) -> Spec:
    """The best ``n`` rows as a list of structs, the best first. Ties go by the remaining columns, ascending; rows in
    which one of the values compared is null are skipped.

    >>> str(top(3, by="amount"))
    'top(3, by=amount)'
    """
    if type(n) is not int or n < 1:
        raise Misuse(f"top({n!r}): give a number of rows from 1 on")
    given = tuple(by) if isinstance(by, list | tuple) else (by,)
    if not given or not all(isinstance(one, str | pl.Expr) for one in given):
        raise Misuse(f"top: by={by!r}; give a column name, an expression, or a list of them")
    if not isinstance(descending, bool):
        raise Misuse(f"top: descending={descending!r}; give True or False")
    return Spec("top", limit=n, by=given, descending=descending)


def rows() -> Spec:
    """All rows as a list of structs, in order of event time, then of arrival.

    >>> str(rows())
    'rows()'
    """
    return Spec("rows")
