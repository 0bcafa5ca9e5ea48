"""Sums of floats in whatever order: against exact fractions, over merges and saves, in sessions cut at will."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import seep
from operators.accumulators import Accumulator
from operators.aggregates import Spec, count, distinct, maximum, mean, minimum, quantile, total, variance
from seep import session

START = datetime(2024, 1, 1, tzinfo=UTC)
SPECS = {"sum": total("x"), "average": mean("x"), "spread": variance("x")}
any_float = st.floats(width=64)
near = st.one_of(
    st.floats(-1e9, 1e9), st.sampled_from([0.1, 0.2, 0.3, -0.1, 1e16, 1.0, -1e16, 5e-324, 2.0**40, 0.0, -0.0])
)

within_97_bits = st.one_of(st.floats(1e-6, 1e6), st.floats(-1e6, -1e-6), st.sampled_from([0.1, -0.1, 2.0**40, 0.0]))


def folded(spec: Spec, values: Sequence[float | None]) -> Accumulator:
    accumulator = spec.in_any_order().accumulator(pa.schema({"x": pa.float64()}))
    accumulator.grow(4)
    accumulator.clear(np.arange(4))
    accumulator.add(np.zeros(len(values), np.int64), pa.array(values, pa.float64()))
    return accumulator


def shown(accumulator: Accumulator) -> str:
    return repr(accumulator.result(np.zeros(1, np.int64)).to_pylist()[0])


@settings(max_examples=150, deadline=None)
@given(values=st.lists(within_97_bits, min_size=1, max_size=20))
@example(values=[1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])
@example(values=[0.1] * 10)
@example(values=[2.0**52, 2.0**52 + 1])
@example(values=[-5e-324, -5e-324])
def test_each_is_the_exact_value_rounded(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    assert folded(total("x"), values).result(np.zeros(1, np.int64)).to_pylist() == [float(exact)]
    assert folded(mean("x"), values).result(np.zeros(1, np.int64)).to_pylist() == [float(exact) / len(values)]
    (spread,) = folded(variance("x"), values).result(np.zeros(1, np.int64)).to_pylist()
    if len(values) < 2:
        assert spread is None
    else:
        middle = exact / len(values)
        wanted = float(sum((Fraction(value) - middle) ** 2 for value in values) / (len(values) - 1))
        assert spread == pytest.approx(wanted, rel=1e-15, abs=5e-324)


@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.one_of(st.none(), any_float, near), max_size=14), data=st.data())
def test_the_order_does_not_show(values: list[float | None], data: st.DataObject) -> None:
    """Folded at once; and in another order, in parts that are saved, cut out of a batch, restored and merged."""
    other = data.draw(st.permutations(values))
    cut = data.draw(st.integers(0, len(values)))
    for spec in (*SPECS.values(), minimum("x"), maximum("x")):
        parts = folded(spec, other[:cut]), folded(spec, other[cut:])
        merged = folded(spec, [])
        for part in data.draw(st.permutations(parts)):
            saved = {name: array.slice(1) for name, array in part.save(np.array([1, 0])).items()}
            restored = folded(spec, [1.5])
            restored.restore(np.zeros(1, np.int64), saved)
            assert shown(restored) == shown(part)
            merged.merge(np.zeros(1, np.int64), restored.save(np.zeros(1, np.int64)))
        assert shown(merged) == shown(folded(spec, values)), spec


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1.7e308, 1.7e308], math.inf),
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),
        ([1e300, 1.0, -1e300], 0.0),
        ([None], None),
        ([-0.0], 0.0),
    ],
)
def test_totals_at_the_edges(values: list[float | None], wanted: float | None) -> None:
    assert shown(folded(total("x"), values)) == repr(wanted)


def test_variances_at_the_edges() -> None:
    assert shown(folded(variance("x"), [math.inf, 1.0])) == "nan"
    assert shown(folded(variance("x"), [1e-160, 3e-160])) == repr(2e-320)
    decimals = variance("x").in_any_order().accumulator(pa.schema({"x": pa.decimal128(9, 2)}))
    decimals.grow(1)
    decimals.add(np.zeros(2, np.int64), pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(9, 2)))
    assert shown(decimals) == "0.5"


def closed(rows: list[dict[str, Any]], per_epoch: int | None, emit: str) -> list[str]:
    flow = seep.Flow("sessions")
    schema = {"k": str, "at": datetime, "x": float | None, "n": int}
    source = flow.source("src", seep.MemorySource(rows, per_epoch=per_epoch, schema=schema), time="at", lateness="1m")
    aggregates: Any = {**SPECS, "n": total("n"), "rows": count(), "least": minimum("x"), "most": maximum("x")}
    aggregates |= {"half": quantile("x", 0.5), "kinds": distinct("x")}
    source.key_by("k").window(session("3s"), emit=emit, **aggregates).collect("out")
    return sorted(map(repr, seep.run(flow, on="inline")["out"].to_pylist()))


row = st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.one_of(st.none(), near))


@settings(max_examples=12, deadline=None)
@given(fed=st.lists(row, min_size=2, max_size=14), emit=st.sampled_from(["close", "update"]))
@example(fed=[("a", 0, 0.1), ("a", 4, 0.2), ("a", 2, 0.3), ("a", 1, 0.1)], emit="close")
def test_closed_sessions_do_not_depend_on_the_cut(fed: list[tuple[str, int, float | None]], emit: str) -> None:
    rows = [{"k": k, "at": START + timedelta(seconds=s), "x": x, "n": s} for k, s, x in fed]
    whole = closed(rows, None, emit)
    assert closed(rows, 1, emit) == whole
    assert closed(rows, 3, emit) == whole
