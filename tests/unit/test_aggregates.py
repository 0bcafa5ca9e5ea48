"""Aggregates: the types they give, the values at the edges, and what they refuse."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from operators.aggregate import Aggregate
from operators.aggregates import Spec, count, maximum, mean, minimum, total
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.keyspace import buckets_of


def result_of(spec: Spec, values: list[Any], kind: pa.DataType) -> tuple[Any, pa.DataType]:
    """The aggregate over all rows."""
    record = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["x"])
    head = Aggregate([], record.schema, {"result": spec})
    output = head.take(Moment(1, 0, 0, 0), [(0, ArrowBatch(record, buckets_of(record, [])))])["out"].record
    return output.column("result")[0].as_py(), output.schema.field("result").type


@pytest.mark.parametrize(
    ("spec", "values", "kind", "expected", "output"),
    [
        (total("x"), [1, None, 2], pa.int8(), 3, pa.int64()),
        (total("x"), [2**64 - 1, 5], pa.uint64(), None, None),
        (total("x", wide=True), [2**64 - 1, 5], pa.uint64(), Decimal(2**64 + 4), pa.decimal128(38, 0)),
        (total("x", wide=True), [-(2**63), -(2**63)], pa.int64(), Decimal(-(2**64)), pa.decimal128(38, 0)),
        (total("x"), [2**63 - 1, 1, -1], pa.int64(), 2**63 - 1, pa.int64()),
        (total("x"), [None, None], pa.int64(), None, pa.int64()),
        (total("x"), [0.5, 1.0], pa.float32(), 1.5, pa.float64()),
        (total("x"), [Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2), Decimal("0.75"), pa.decimal128(38, 2)),
        (total("x"), [timedelta(1), timedelta(2)], pa.duration("us"), timedelta(3), pa.duration("us")),
        (mean("x"), [2**62, 2**62, 2**62 + 3], pa.int64(), (3 * 2**62 + 3) / 3, pa.float64()),
        (mean("x"), [1, 2], pa.int32(), 1.5, pa.float64()),
        (mean("x"), [Decimal("0.10"), Decimal("0.20")], pa.decimal128(9, 2), 0.15, pa.float64()),
        (minimum("x"), [2**63, 1], pa.uint64(), 1, pa.uint64()),
        (maximum("x"), [2**63, 1], pa.uint64(), 2**63, pa.uint64()),
        (maximum("x"), [date(2024, 1, 1), date(2013, 6, 22)], pa.date32(), date(2024, 1, 1), pa.date32()),
        (minimum("x"), [Decimal("-1.5"), Decimal("2")], pa.decimal128(9, 2), Decimal("-1.50"), pa.decimal128(9, 2)),
        (maximum("x"), [True, False], pa.bool_(), True, pa.bool_()),
        (maximum("x"), [b"\xff", b"a"], pa.binary(), b"\xff", pa.binary()),
        (count("x"), [None, None], pa.string(), 0, pa.int64()),
        (count(), [None, None], pa.string(), 2, pa.int64()),
        (total(pl.col("x") * 2), [1, 2], pa.int64(), 6, pa.int64()),
        (count(pl.lit(1)), [1, None], pa.int64(), 2, pa.int64()),
        (maximum(pl.col("x").str.to_uppercase()), ["a", "b"], pa.string(), "B", pa.string()),
    ],
)
def test_values_and_types(spec: Spec, values: list[Any], kind: pa.DataType, expected: Any, output: Any) -> None:
    if output is None:
        with pytest.raises(Misuse, match="does not fit int64 for key all rows"):
            result_of(spec, values, kind)
    else:
        assert result_of(spec, values, kind) == (expected, output)


def test_a_decimal_total_beyond_38_digits_stops() -> None:
    with pytest.raises(Misuse, match="does not fit"):
        result_of(total("x"), [Decimal(9 * 10**37), Decimal(9 * 10**37)], pa.decimal128(38, 0))


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        (total("x"), pa.string(), "cannot take a string"),
        (mean("x"), pa.bool_(), "cannot take a bool"),
        (maximum("x"), pa.list_(pa.int64()), "cannot take a list"),
        (total("y"), pa.int64(), "not there; there are x"),
        (total("x", wide=True), pa.float64(), r"total\('x'\): wide=True is for integers, and the column is a double"),
        (total("x", wide=True), pa.decimal128(10, 2), "the column is a decimal128.10, 2."),
        (total("x", wide=True), pa.duration("us"), "the column is a duration"),
        (total(pl.col("y") + 1), pa.int64(), "reads 'y'"),
    ],
)
def test_what_cannot_be_is_refused_when_the_flow_is_built(spec: Spec, kind: pa.DataType, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        spec.output_type(pa.schema({"x": kind}))
