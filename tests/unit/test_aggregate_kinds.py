"""What each aggregate means, sentence by sentence; at scale against DuckDB; through flows, kills and rescaling."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.aggregate import Aggregate
from operators.aggregates import Spec, count, distinct, first, last, median, quantile, rows, top, total, variance
from operators.combine import why_not
from operators.memory import Memory
from operators.window import TumblingWindow
from seep.errors import Misuse
from seep.flow.compile import compile_flow
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP
from seep.testing import Driver
from tests.unit.test_aggregates import result_of

NAN, INF = math.nan, math.inf
MONEY = pa.decimal128(9, 2)


@pytest.mark.parametrize(
    ("spec", "values", "kind", "expected", "output"),
    [
        (median("x"), [3, None, 1, 2], pa.int8(), 2.0, pa.float64()),
        (median("x"), [1, 2, 3, 10], pa.uint64(), 2.5, pa.float64()),
        (median("x"), [None], pa.float32(), None, pa.float64()),
        (median("x"), [Decimal("0.30"), Decimal("0.30")], MONEY, 0.3, pa.float64()),
        (median("x"), [INF, INF], pa.float64(), INF, pa.float64()),
        (median("x"), [-1.7e308, 1.7e308], pa.float64(), 0.0, pa.float64()),
        (median("x"), [1.0, 2.0, NAN], pa.float64(), 2.0, pa.float64()),
        (quantile("x", 0), [5.0, NAN, -INF], pa.float64(), -INF, pa.float64()),
        (quantile("x", 0.25), [10, 20], pa.int64(), 12.5, pa.float64()),
        (quantile("x", 1), [10, 20], pa.int64(), 20.0, pa.float64()),
        (quantile(pl.col("x") * 2, 0.5), [1, 2], pa.int64(), 3.0, pa.float64()),
        (quantile("x", 0.5, approx=True), [0, 0, 7], pa.int64(), 0.0, pa.float64()),
        (quantile("x", 1, approx=True), [0, INF], pa.float64(), INF, pa.float64()),
        (quantile("x", 0.5, approx=True), [None], pa.float64(), None, pa.float64()),
        (variance("x"), [2, 4, None, 9], pa.int16(), 13.0, pa.float64()),
        (variance("x"), [1], pa.int64(), None, pa.float64()),
        (variance("x"), [2**63 - 1, -(2**63)], pa.int64(), (2**64 - 1) ** 2 / 2, pa.float64()),
        (variance("x"), [2**64 - 1, 2**64 - 2, 2**64 - 3], pa.uint64(), 1.0, pa.float64()),
        (variance("x"), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], pa.float64(), 30.0, pa.float64()),
        (variance("x"), [Decimal("1.50"), Decimal("2.50")], MONEY, 0.5, pa.float64()),
        (distinct("x"), [None, None], pa.string(), 0, pa.int64()),
        (distinct("x"), ["a", None, "b", "a"], pa.string(), 2, pa.int64()),
        (distinct("x"), [0.0, -0.0, NAN, NAN, 1.0], pa.float64(), 3, pa.int64()),
        (distinct("x"), [True, False, True], pa.bool_(), 2, pa.int64()),
        (distinct("x"), [Decimal("1.10"), Decimal("1.1")], MONEY, 1, pa.int64()),
        (distinct("x"), [date(2024, 1, 1), date(2024, 1, 2)], pa.date32(), 2, pa.int64()),
        (distinct("x"), [timedelta(1), timedelta(1)], pa.duration("us"), 1, pa.int64()),
        (distinct("x", approx=True), [None], pa.int64(), 0, pa.int64()),
        (distinct("x", approx=True), ["a", "b", "a", "", None], pa.string(), 3, pa.int64()),
        (first("x"), [None, "a", "b"], pa.string(), "a", pa.string()),
        (last("x"), ["a", "b", None], pa.string(), "b", pa.string()),
        (first("x"), [None], pa.date32(), None, pa.date32()),
        (last("x"), [[1], [2, None]], pa.list_(pa.int64()), [2, None], pa.list_(pa.int64())),
        (top(2, by="x"), [1, None, 3, 2], pa.int64(), [{"x": 3}, {"x": 2}], pa.list_(pa.struct({"x": pa.int64()}))),
        (top(1, by="x"), [1.0, NAN, INF], pa.float64(), [{"x": NAN}], pa.list_(pa.struct({"x": pa.float64()}))),
        (top(9, by="x", descending=False), ["é", "z"], pa.string(), [{"x": "z"}, {"x": "é"}], None),
        (top(1, by="x"), [None], pa.int64(), None, pa.list_(pa.struct({"x": pa.int64()}))),
        (rows(), [2, None, 1], pa.int64(), [{"x": 2}, {"x": None}, {"x": 1}], pa.list_(pa.struct({"x": pa.int64()}))),
    ],
)
def test_values_and_types(spec: Spec, values: list[Any], kind: pa.DataType, expected: Any, output: Any) -> None:
    found, found_type = result_of(spec, values, kind)
    assert repr(found) == repr(expected)
    assert output is None or found_type == output


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: variance("x"), pa.string(), r"variance\('x'\) cannot take a string; cast"),
        (lambda: variance("x"), pa.bool_(), "cannot take a bool"),
        (lambda: median("x"), pa.duration("us"), "cannot take a duration"),
        (lambda: quantile("x", 0.5, approx=True), pa.date32(), "cannot take a date32"),
        (lambda: quantile("x", 90), pa.int64(), "between 0 and 1"),
        (lambda: distinct("x"), pa.list_(pa.int64()), "cannot take a list"),
        (lambda: first("y"), pa.int64(), "not there; there are x"),
        (lambda: top(0, by="x"), pa.int64(), "from 1 on"),
        (lambda: top(1, by=[]), pa.int64(), "give a column name"),
        (lambda: top(1, by="y"), pa.int64(), "not there; there are x"),
        (lambda: top(1, by="x"), pa.list_(pa.int64()), "cannot compare a list"),
        (lambda: top(1, by=pl.col("y") + 1), pa.int64(), "reads 'y'"),
        (lambda: top(1, by="x", descending="x"), pa.int64(), "descending='x'; give True or False"),  # type: ignore[arg-type]
        (lambda: top(1, by=5), pa.int64(), "by=5; give a column name"),  # type: ignore[arg-type]
        (lambda: total(5), pa.int64(), r"total\(5\): give a column name or a Polars expression"),  # type: ignore[arg-type]
        (lambda: total(["x"]), pa.int64(), r"total\(\['x'\]\): give a column name"),  # type: ignore[arg-type]
        (lambda: count(5), pa.int64(), r"count\(5\): give a column name"),  # type: ignore[arg-type]
        (lambda: quantile("x", "y"), pa.int64(), r"quantile\('x', 'y'\): give a share"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused_when_the_flow_is_built(make: Any, kind: pa.DataType, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        make().output_type(pa.schema({"x": kind}))


# --- at scale ----------------------------------------------------------------------------------------------------


def test_as_duckdb_has_it() -> None:
    random = np.random.default_rng(4)
    size = 30_000
    table = pa.table(
        {
            "key": random.integers(0, 50, size),
            "x": pa.array(random.normal(10, 5, size), mask=random.random(size) < 0.1),
            "n": random.integers(-1000, 1000, size),
            "s": pa.array([f"user {number}" for number in random.integers(0, 400, size)]),
        }
    )
    specs = {
        "middle": median("x"),
        "ninth": quantile("x", 0.9),
        "spread": variance("x"),
        "whole": variance("n"),
        "users": distinct("s"),
        "numbers": distinct("n"),
    }
    head = Aggregate(["key"], table.schema, specs)
    record = table.to_batches()[0]
    for epoch, low in enumerate(range(0, size, 7_000), 1):
        part = record.slice(low, 7_000)
        head.take(Moment(epoch, 0, 0, 0), [(0, ArrowBatch(part, buckets_of(part, ["key"])))])
    found = {row["key"]: row for row in head.content().to_pylist()}
    query = """select key, quantile_cont(x, 0.5), quantile_cont(x, 0.9), var_samp(x), var_samp(n),
        count(distinct s), count(distinct n) from t group by key"""
    connection = duckdb.connect()
    connection.register("t", table)
    for key, *values in connection.execute(query).fetchall():
        assert [found[key][name] for name in specs] == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize("size", [100, 1_000, 3_000, 20_000, 300_000])
def test_a_sketch_of_distinct_values_is_within_its_error(size: int) -> None:
    found, _ = result_of(distinct("x", approx=True), list(range(size)) * 2, pa.int64())
    assert found == pytest.approx(size, rel=4 * 0.016)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 1.0])
def test_a_sketch_of_quantiles_is_within_its_error(share: float) -> None:
    values = np.random.default_rng(2).lognormal(0, 6, 5_000) * np.random.default_rng(3).choice([-1, 1], 5_000)
    found, _ = result_of(quantile("x", share, approx=True), values.tolist(), pa.float64())
    exact, _ = result_of(quantile("x", share), values.tolist(), pa.float64())
    assert found == pytest.approx(exact, rel=1 / 128)


def test_sketches_do_not_remember_the_order() -> None:
    """Nor where they crossed from few registers to all."""
    values = np.random.default_rng(5).permutation(6_000)
    schema = pa.schema({"x": pa.int64()})
    specs = {"about": distinct("x", approx=True), "roughly": quantile("x", 0.7, approx=True)}
    states = []
    for order in (values, np.sort(values)):
        memory = Memory(schema, specs)
        memory.grow(2)
        for part in np.array_split(order, 7):
            memory.fold(np.zeros(len(part), np.int64), pa.record_batch({"x": part}))
        states.append({name: one.save(np.array([0, 1])) for name, one in memory.accumulators.items()})
    assert states[0] == states[1]


# --- through flows -----------------------------------------------------------------------------------------------

START = datetime(2024, 1, 1, tzinfo=UTC)
PRICE = {"item": str, "price": float, "ts": int}


class Range(seep.Aggregate):
    """The greatest minus the least."""

    def __init__(self, column: str, factor: int = 1) -> None:
        super().__init__(column)
        self.factor = factor

    def zero(self) -> Any:
        return {"low": INF, "high": -INF}

    def add(self, state: Any, value: float) -> Any:
        return {"low": min(state["low"], value), "high": max(state["high"], value)}

    def merge(self, state: Any, other: Any) -> Any:
        return {"low": min(state["low"], other["low"]), "high": max(state["high"], other["high"])}

    def result(self, state: Any) -> float:
        return float(self.factor * (state["high"] - state["low"]))


class Largest(seep.BatchAggregate):
    zero = {"best": 0.0}  # noqa: RUF012

    def add(self, state: Any, groups: Any, values: Any) -> None:
        np.maximum.at(state["best"], groups, values.to_numpy())

    def result(self, state: Any) -> float:
        answer: float = state["best"]
        return answer


def price(item: str, value: float, seconds: int) -> dict[str, Any]:
    return {"item": item, "price": value, "ts": seconds}


def prices_flow() -> seep.Flow:
    flow = seep.Flow("prices", checkpoint="200ms")
    source = flow.source("prices", seep.MemorySource([price("x", 1.0, 0)]), time=("ts", "s"), lateness="1m")
    kinds: dict[str, Any] = {
        "middle": seep.median("price"),
        "spread": seep.variance("price"),
        "prices": seep.distinct("price"),
        "about": seep.distinct("price", approx=True),
        "high": seep.quantile("price", 0.9, approx=True),
        "opened": seep.first("price"),
        "closed": seep.last("price"),
        "best": seep.top(2, by="price"),
        "range": Range("price", factor=2),
        "largest": Largest("price"),
    }
    source.key_by("item").aggregate(**kinds, all=seep.rows()).named("running").collect("now")
    source.key_by("item").window(seep.tumbling("1m"), **kinds).named("minute").collect("minutes")
    return flow


def test_event_time_decides_what_is_first_and_last_not_arrival() -> None:
    driver = Driver(prices_flow())
    driver.feed("prices", [price("a", 3.0, 30), price("a", 1.0, 10), price("a", 2.0, 20), price("a", 4.0, 30)])
    driver.feed("prices", [price("a", 9.0, 10), price("a", 8.0, 25)])
    driver.close()
    row = driver.output("now")[0]
    assert (row["opened"], row["closed"]) == (1.0, 4.0), "of equal times the first, the last to arrive"
    assert [entry["price"] for entry in row["all"]] == [1.0, 9.0, 2.0, 8.0, 3.0, 4.0]
    assert row["all"][0] == price("a", 1.0, 10), "the column that carries the time does not show"
    assert row["best"] == [price("a", 9.0, 10), price("a", 8.0, 25)]
    assert (row["range"], row["largest"]) == (16.0, 9.0)
    driver.assert_exactly_once()


def test_kills_and_rescaling_do_not_show() -> None:
    driver = Driver(prices_flow())
    random = np.random.default_rng(1)
    for step in range(8):
        driver.feed("prices", [price(f"item {random.integers(9)}", float(random.integers(50)), 20 * step + at % 7)
                               for at in range(25)])  # fmt: skip
        match step:
            case 1:
                driver.checkpoint()
            case 2:
                driver.kill("running", 0)
            case 3:
                driver.scale("running", 3)
                driver.scale("minute", 2)
            case 4:
                driver.kill("minute", 1)
            case 5:
                driver.checkpoint()
                driver.kill("running", 2)
            case 6:
                driver.scale("running", 1)
                driver.scale("minute", 1)
    driver.close()
    assert len(driver.output("now")) == 9
    driver.assert_exactly_once()


def test_a_worker_warms_up_without_users_code() -> None:
    """Of every kind at once, with columns of every sort."""
    schema = pa.schema({"key": pa.string(), "at": TIMESTAMP, "x": pa.int64(), "r": pa.float64(), "l": pa.list_(MONEY)})
    kept: dict[str, Any] = {
        "a": median("x"),
        "b": rows(),
        "c": top(1, by="r"),
        "d": distinct("key"),
        "e": variance("r"),
    }
    sent: dict[str, Any] = {"a": first("l"), "b": last("key"), "c": variance("x"), "d": distinct("x", approx=True)}
    sent["e"] = quantile("r", 0.5, approx=True)
    calls: list[str] = []

    class Counting(Largest):
        def add(self, state: Any, groups: Any, values: Any) -> None:
            calls.append("add")

    for kinds in (kept, sent, {"own": Counting("r")}):
        flow = seep.Flow("warm")
        source = flow.source("rows", seep.MemorySource(schema.empty_table()), time="at").key_by("key")
        source.aggregate(**kinds).named("running").collect("now")
        source.window(seep.tumbling("1m"), **kinds).named("minute").collect("minutes")
        for node in compile_flow(flow).nodes.values():
            if hasattr(node.make, "warm"):
                node.make.warm()
    assert calls == []


def test_an_increment_holds_only_the_lists_that_changed() -> None:
    specs = {"middle": median("x"), "all": rows(), "kinds": distinct("x"), "best": top(1, by="x")}
    schema = pa.schema({"key": pa.int64(), "x": pa.int64()})
    head = Aggregate(["key"], schema, specs)

    def take(epoch: int, keys: list[int]) -> None:
        record = pa.record_batch({"key": keys, "x": [epoch] * len(keys)}, schema=schema)
        head.take(Moment(epoch, 0, BEGINNING, BEGINNING), [(0, ArrowBatch(record, buckets_of(record, ["key"])))])

    take(1, list(range(500)) * 3)
    assert head.snapshot(True).tables["groups"].num_rows == 500
    take(2, [3, 4])
    assert head.snapshot(False).tables["groups"].num_rows == 2


def test_closed_windows_leave_nothing_behind() -> None:
    """However many windows have come and gone, the state is as large as what is open."""
    specs = {"middle": median("x"), "all": rows(), "kinds": distinct("x"), "about": distinct("x", approx=True)}
    schema = pa.schema({"at": TIMESTAMP, "x": pa.int64()})
    head = TumblingWindow([], schema, "at", 10, 0, ("start", "end"), specs)
    sizes = []
    for epoch in range(1, 30):
        times = pa.array([10 * epoch] * 600, pa.int64()).cast(TIMESTAMP)
        record = pa.record_batch([times, pa.array(range(600))], schema=schema)
        moment = Moment(epoch, 0, 10 * epoch, 10 * epoch + 10)
        out = head.take(moment, [(0, ArrowBatch(record, buckets_of(record, [])))])["out"].record
        assert [(row["kinds"], len(row["all"])) for row in out.to_pylist()] == [(600, 600)]
        sizes.append(head.statistics()["state_bytes"])
    assert head.statistics()["keys"] == 0
    assert max(sizes[15:]) <= max(sizes[:10])


# --- users' own --------------------------------------------------------------------------------------------------


class Untyped(seep.Aggregate):
    def zero(self) -> Any:
        return 0

    def add(self, state: Any, value: Any) -> Any:
        return state + 1 // value

    def result(self, state):  # type: ignore[no-untyped-def]
        return state


class Halfway(seep.Aggregate):
    def zero(self) -> Any:
        return 0

    def result(self, state: Any) -> int:
        return 0


class Failing(Untyped):
    output = int


class Stateless(seep.BatchAggregate):
    def add(self, state: Any, groups: Any, values: Any) -> None: ...

    def result(self, state: Any) -> float:
        return 0.0


class Short(Largest):
    def result(self, state: Any) -> float:
        answer: float = state["best"][1:]
        return answer


class Keeping(Failing):
    def add(self, state: Any, value: Any) -> Any:
        return object()


class Half(Halfway):
    def add(self, state: Any, value: Any) -> Any:
        return state + value / 2

    def result(self, state: Any) -> int:
        answer: int = state
        return answer


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (Untyped("x"), "does not say what it gives; annotate it"),
        (Halfway("x"), r"Halfway\('x'\) has no add; an aggregate needs zero, add, result"),
        (Stateless("x"), "needs the columns of its state"),
        (Range("y"), "not there; there are x"),
    ],
)
def test_an_aggregate_of_ones_own_that_cannot_work_is_refused(own: Any, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        own.output_type(pa.schema({"x": pa.int64()}))


def test_what_users_code_raises_stops_the_flow_and_names_it() -> None:
    with pytest.raises(Misuse, match=r"Short\('x'\) gives 0 results for 1 groups"):
        result_of(Short("x"), [1.0], pa.float64())
    with pytest.raises(Misuse, match=r"Half\('x'\).*has 1.5, which is not a int64"):
        result_of(Half("x"), [3], pa.int64())
    flow = seep.Flow("own")
    source = flow.source("numbers", seep.MemorySource([{"x": 0}]))
    source.key_by().aggregate(worst=Failing("x"), on_error="fail").named("mine").collect("out")
    with pytest.raises(Misuse, match=r"mine.*Failing\('x'\) fails"):
        seep.run(flow, on="inline")
    head = Aggregate([], pa.schema({"x": pa.int64()}), {"kept": Keeping("x")})
    record = pa.record_batch({"x": [None, 1]}, schema=pa.schema({"x": pa.int64()}))
    with pytest.raises(Misuse, match="TypeError: state cannot keep a object"):
        head.take(Moment(1, 0, 0, 0), [(0, ArrowBatch(record, buckets_of(record, [])))])


def test_which_can_be_merged_and_which_taken_back() -> None:
    schema = pa.schema({"x": pa.int64()})
    assert Range("x").accumulator(schema).mergeable
    assert not Failing("x").accumulator(schema).mergeable
    assert not Largest("x").accumulator(schema).mergeable
    assert not first("x").accumulator(schema).subtractable
    assert not top(1, by="x").accumulator(schema).subtractable


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (variance("r"), "sum = variance('r') adds floats, whose result depends on the order"),
        (median("x"), "sum = median('x') keeps every value, so folding would save nothing"),
        (distinct("x"), "sum = distinct('x') keeps every value, so folding would save nothing"),
        (rows(), "sum = rows() keeps every row, so folding would save nothing"),
        (Range("x"), "sum = Range('x') runs code of yours, which only the operator runs"),
        (distinct("x", approx=True), ""),
        (quantile("r", 0.5, approx=True), ""),
        (variance("x"), ""),
        (last("x"), ""),
    ],
)
def test_why_rows_are_not_folded_by_their_senders(spec: Spec, reason: str) -> None:
    schema = pa.schema({"x": pa.int64(), "r": pa.float64()})
    assert why_not(schema, {"n": count(), "all": total("x"), "sum": spec}) == reason


def test_senders_fold_by_event_time_and_leave_out_what_nobody_reads() -> None:
    def flow_of(**kinds: Any) -> seep.Flow:
        flow = seep.Flow("prices")
        record = pa.table({"item": ["a", "a"], "price": [1, 2], "ts": [2, 1], "unread": ["", ""]})
        source = flow.source("prices", seep.MemorySource(record), time=("ts", "s"))
        source.key_by("item").aggregate(**kinds).named("kinds").collect("out")
        return flow

    opened = {"opened": first("price"), "closed": last("price")}
    for kinds in (opened, {**opened, "middle": median("price")}):
        out = seep.run(flow_of(**kinds), on="inline")["out"].to_pylist()
        assert [(row["opened"], row["closed"]) for row in out] == [(2, 1)]
