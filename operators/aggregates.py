"""The aggregates a user names in `aggregate` and `window`: what each means, which types it takes and gives.

All skip nulls; a key whose values were all null gives null (a count gives 0). Totals of integers are exact and
checked when a value is given out, so an overflow stops the flow instead of wrapping.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from seep.errors import Misuse
from seep.model.schema import normalise, physical_type


@dataclass(frozen=True, eq=False)
class Spec:
    """One aggregate: its name, and the column or expression it reads."""

    aggregate: str
    column: str | pl.Expr | None = None
    wide: bool = False

    def input_type(self, schema: pa.Schema) -> pa.DataType | None:
        """The type of the values; None for `count()`, which needs none."""
        if self.column is None:
            return None
        if isinstance(self.column, str):
            if schema.get_field_index(self.column) < 0:
                raise Misuse(f"{self} reads a column that is not there; there are {', '.join(schema.names)}")
            return physical_type(schema.field(self.column).type)
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return evaluate(empty, {"value": self.column})["value"].type

    def output_type(self, schema: pa.Schema) -> pa.DataType:
        return self.accumulator(schema).output

    def accumulator(self, schema: pa.Schema) -> Accumulator:
        """The memory this aggregate needs over values of that type."""
        kind = self.input_type(schema)
        if self.aggregate == "count":
            return Count(kind or pa.null(), pa.int64())
        if kind is None:
            raise Misuse(f"{self.aggregate} needs a column")
        made = _extreme(kind, self.aggregate) if self.aggregate in ("minimum", "maximum") else _sum(kind, self)
        if made is None:
            raise Misuse(f"{self} cannot take a {kind}; cast the column to a type it can")
        return made

    def __str__(self) -> str:
        return f"{self.aggregate}()" if self.column is None else f"{self.aggregate}({self.column!r})"


def _sum(kind: pa.DataType, spec: Spec) -> Accumulator | None:
    mean = spec.aggregate == "mean"
    if pa.types.is_floating(kind):
        return FloatMean(kind, pa.float64()) if mean else FloatTotal(kind, pa.float64())
    if pa.types.is_integer(kind):
        wide = pa.decimal128(38, 0) if spec.wide else pa.int64()
        return ExactMean(kind, pa.float64()) if mean else ExactTotal(kind, wide)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return DecimalMean(kind, pa.float64()) if mean else DecimalTotal(kind, pa.decimal128(38, kind.scale))
    if pa.types.is_duration(kind) and not mean:
        return ExactTotal(kind, pa.duration("us"))
    return None


def _extreme(kind: pa.DataType, aggregate: str) -> Accumulator | None:
    greatest = aggregate == "maximum"
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


def evaluate(record: pa.RecordBatch, expressions: dict[str, pl.Expr]) -> dict[str, pa.Array]:
    """The values of Polars expressions over a record, one for each row, in physical form."""
    if not expressions:
        return {}
    # Only the columns that are read: giving Polars a string column copies it.
    roots = {name for expression in expressions.values() for name in expression.meta.root_names()}
    unknown = sorted(roots.difference(record.schema.names))
    if unknown:
        raise Misuse(f"an expression reads {unknown[0]!r}, which is not among {', '.join(record.schema.names)}")
    names = [name for name in record.schema.names if name in roots] or record.schema.names[:1]
    frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([record.select(names)])))
    try:
        values = frame.with_columns(e.alias(f"__{name}") for name, e in expressions.items())
    except pl.exceptions.PolarsError as problem:
        raise Misuse(f"an expression fails: {str(problem).splitlines()[0]}") from problem
    table = values.select([f"__{name}" for name in expressions]).to_arrow().combine_chunks()
    plain = normalise(pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks()))
    return dict(zip(expressions, plain.columns, strict=True))


def count(column: str | pl.Expr | None = None) -> Spec:
    """Rows; with a column, its values that are not null.

    >>> str(count())
    'count()'
    """
    return Spec("count", column)


def total(column: str | pl.Expr, wide: bool = False) -> Spec:
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
