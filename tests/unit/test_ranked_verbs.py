"""What `top`, `dedupe` and `reduce` mean, through flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.ranking import Ranking
from operators.top import Top
from seep import Flow, MemorySource, Misuse, count, total, tumbling
from seep.flow.compile import compile_flow
from seep.flow.stream import Stream
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.keyspace import buckets_of
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
Rows = list[dict[str, Any]]


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def sale(seconds: int, region: str | None, item: str, sold: int | None) -> dict[str, Any]:
    return {"at": at(seconds), "region": region, "item": item, "sold": sold}


SALES = [
    sale(0, "east", "tea", 3),
    sale(10, "east", "milk", 5),
    sale(20, "west", "tea", 1),
    sale(30, "east", "rice", 3),
    sale(40, None, "salt", 2),
    sale(70, "east", "tea", 1),
    sale(80, "west", "milk", 4),
    sale(90, "west", "rice", 4),
]


def outcome(rows: Rows, build: Callable[[Stream], Any], per_epoch: int | None = None) -> Rows:
    flow = Flow("test")
    build(flow.source("in", MemorySource(rows, per_epoch=per_epoch), time="at")).collect("out")
    found: Rows = seep.run(flow, on="inline")["out"].to_pylist()
    return found


def shown(rows: Rows, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def minute(stream: Stream) -> Any:
    return stream.key_by("region", "item").window(tumbling("1m"), sold=total("sold"))


# --- top ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_epoch", [1, 3, None])
def test_top_behind_a_window_ranks_each_key_and_window_once(per_epoch: int | None) -> None:
    rows = outcome(SALES, lambda s: minute(s).key_by("region").top(2, by="sold"), per_epoch)
    assert list(rows[0]) == ["region", "item", "window_start", "window_end", "sold", "rank"]
    assert shown(rows, "region", "window_end", "rank", "item", "sold") == sorted(
        [
            ("east", at(60), 1, "milk", 5),
            ("east", at(60), 2, "rice", 3),  # rice and tea sold equally: by the remaining columns
            ("west", at(60), 1, "tea", 1),
            (None, at(60), 1, "salt", 2),
            ("east", at(120), 1, "tea", 1),
            ("west", at(120), 1, "milk", 4),
            ("west", at(120), 2, "rice", 4),
        ],
        key=repr,
    )


def test_shared_ranks() -> None:
    def first_two(stream: Stream) -> Any:
        return minute(stream).key_by("region").top(2, by="sold", ties="rank")

    rows = [row for row in outcome(SALES, first_two) if row["window_end"] == at(60) and row["region"] == "east"]
    assert [(row["rank"], row["item"]) for row in rows] == [(1, "milk"), (2, "rice"), (2, "tea")]
    third = [sale(0, "east", item, sold) for item, sold in [("a", 5), ("b", 5), ("c", 4), ("d", 4)]]
    assert [row["rank"] for row in outcome(third, first_two)] == [1, 1]
    best_three = outcome(third, lambda s: minute(s).key_by("region").top(3, by="sold", ties="rank"))
    assert [row["rank"] for row in best_three] == [1, 1, 3, 3]


def test_the_ranked_stream_has_the_windows_time() -> None:
    def again(stream: Stream) -> Any:
        ranked = minute(stream).key_by("region").top(1, by="sold")
        assert isinstance(ranked, Stream)
        return ranked.key_by().window(tumbling("2m"), winners=count())

    assert shown(outcome(SALES, again), "window_end", "winners") == [(at(120), 5)]


def test_window_columns_are_followed_through_stateless_verbs() -> None:
    def renamed(stream: Stream) -> Any:
        closed = minute(stream).rename(until="window_end").drop("window_start").filter(pl.col("sold") > 1)
        return closed.with_columns(double=pl.col("sold") * 2).key_by("region").top(1, by=[pl.col("double")])

    rows = outcome(SALES, renamed)
    assert shown(rows, "region", "until", "item") == sorted(
        [("east", at(60), "milk"), (None, at(60), "salt"), ("west", at(120), "milk")], key=repr
    )


def test_a_top_of_tops_is_of_the_window_too() -> None:
    def overall(stream: Stream) -> Any:
        regional = minute(stream).key_by("region").top(1, by="sold").rename(regional="rank")
        return regional.key_by().top(1, by="sold")

    rows = outcome(SALES, overall, per_epoch=1)
    assert shown(rows, "window_end", "region", "item") == [(at(60), "east", "milk"), (at(120), "west", "milk")]


def named(stream: Stream) -> Any:
    return stream.flow.source("names", MemorySource([{"i": item} for item in ("milk", "tea", "rice", "salt")]))


BETWEEN: dict[str, Callable[[Any], Any]] = {
    "a lookup": lambda closed: closed.key_by("item").join_table(named(closed).key_by("i").table()),
    "a broadcast lookup": lambda closed: closed.key_by("item").join_table(named(closed).key_by("i").broadcast()),
    "dedupe": lambda closed: closed.dedupe("region", "item", "window_end"),
    "a grouping": lambda closed: closed.shuffle().named("anywhere").local().named("here"),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_passes_rows_on_at_once_may_stand_between(between: Callable[[Any], Any]) -> None:
    def overall(stream: Stream) -> Any:
        best = between(minute(stream)).key_by().top(1, by="sold")
        assert isinstance(best, Stream)
        return best

    rows = outcome(SALES, overall, per_epoch=1)
    assert shown(rows, "window_end", "region", "item") == [(at(60), "east", "milk"), (at(120), "west", "milk")]


def test_without_window_columns_top_runs_on() -> None:
    def build(stream: Stream) -> Any:
        best = minute(stream).drop("window_start", "window_end").key_by("region").top(1, by="sold")
        assert isinstance(best, seep.Table)
        return best

    assert shown(outcome(SALES, build, 1), "region", "item", "sold") == sorted(
        [("east", "milk", 5), ("west", "milk", 4), (None, "salt", 2)], key=repr
    )


def test_a_table_of_windows_is_not_ranked_at_close() -> None:
    flow = Flow("test")
    sales = flow.source("in", MemorySource(SALES), time="at")
    table = sales.key_by("region", "item").window(tumbling("1m"), emit="update", sold=total("sold"))
    with pytest.raises(Misuse, match=r"a Table has no top; use its rows in groups, .key_by"):
        table.top(1, by="sold")
    with pytest.raises(Misuse, match="'change', which top needs itself"):
        table.changes().key_by("region").top(1, by="sold")


def test_a_running_top_sends_what_changed_at_a_place() -> None:
    rows = [sale(0, "e", "a", 1), sale(1, "e", "b", 5), sale(2, "e", "c", 0), sale(3, "e", "d", 3)]
    changes = outcome(rows, lambda s: s.key_by("region").top(2, by="sold").changes(), per_epoch=1)
    assert [(row["change"], row["rank"], row["item"]) for row in changes] == [
        ("insert", 1, "a"),
        ("update", 1, "b"),
        ("insert", 2, "a"),
        ("update", 2, "d"),
    ]


def test_a_running_top_with_shared_ranks_can_shrink() -> None:
    rows = [
        sale(0, "e", "a", 1),
        sale(1, "e", "b", 1),
        sale(2, "e", "c", 1),
        sale(3, "e", "d", 2),
        sale(4, "e", "e", 2),
    ]
    changes = outcome(rows, lambda s: s.key_by("region").top(2, by="sold", ties="rank").changes(), per_epoch=3)
    assert [(row["change"], row["place"], row["rank"], row["item"]) for row in changes] == [
        ("insert", 1, 1, "a"),
        ("insert", 2, 1, "b"),
        ("insert", 3, 1, "c"),
        ("update", 1, 1, "d"),
        ("update", 2, 1, "e"),
        ("delete", 3, 1, "c"),
    ]


@pytest.mark.parametrize(
    ("values", "descending", "want"),
    [
        ([1.0, None, float("nan"), -0.0, 0.0, float("inf")], True, [2, 5, 0, 3, 4, 1]),
        ([1.0, None, float("nan"), -0.0, 0.0, float("-inf")], False, [5, 3, 4, 0, 2, 1]),
        (["b", None, "é", "", "z"], False, [3, 0, 4, 2, 1]),
        ([True, False, None], True, [0, 1, 2]),
        ([-(2**63), 2**63 - 1, 0], True, [1, 2, 0]),
        ([None, None], True, [0, 1]),
    ],
)
def test_nulls_come_last_and_nan_is_above_all_numbers(values: list[Any], descending: bool, want: list[int]) -> None:
    record = pa.record_batch({"value": values})
    ranking = Ranking(record.schema, ["value"], 10, descending, "number", [])

    assert ranking.best(record, [np.zeros(len(values), np.int64)]).rows.tolist() == want


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.int8(), pa.float32(), pa.decimal128(38, 9), pa.duration("us"), pa.date32()]
)
def test_every_ordered_type_ranks(kind: pa.DataType) -> None:

    values = [3, 1, None, 2]
    small = pa.array(values, pa.int32())
    column = small.cast(kind) if not pa.types.is_duration(kind) else small.cast(pa.int64()).cast(kind)
    record = pa.record_batch({"value": column})
    ranking = Ranking(record.schema, ["value"], 3, True, "number", [])
    assert ranking.best(record, [np.zeros(4, np.int64)]).rows.tolist() == [0, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "by": "sold"}, "n=0; give a whole number"),
        ({"n": True, "by": "sold"}, "n=True"),
        ({"n": 1, "by": "price"}, "unknown column 'price' to rank by"),
        ({"n": 1, "by": []}, "nothing to rank by"),
        ({"n": 1, "by": 3}, "cannot rank by 3"),
        ({"n": 1, "by": "tags"}, "has no order"),
        ({"n": 1, "by": "sold", "ties": "dense"}, "ties='dense'; choose one of number, rank"),
        ({"n": 1, "by": "sold", "descending": "yes"}, "descending='yes'; give True or False"),
        ({"n": 1, "by": pl.col("sold").cum_sum()}, "looks at neighbouring rows"),
        ({"n": 1, "by": pl.all()}, "columns; give one"),
    ],
)
def test_top_refuses(arguments: dict[str, Any], message: str) -> None:
    rows = [{"region": "e", "sold": 1, "tags": [1]}]
    stream = Flow("test").source("in", MemorySource(rows))
    with pytest.raises(Misuse, match="top works by key"):
        stream.top(1, by="sold")
    with pytest.raises(Misuse, match=message):
        stream.key_by("region").top(**arguments)


def test_top_needs_the_name_rank() -> None:
    stream = Flow("test").source("in", MemorySource([{"region": "e", "rank": 1, "place": 2}]))
    with pytest.raises(Misuse, match="'rank', which top needs itself; rename or drop it"):
        stream.key_by("region").top(1, by="place")
    with pytest.raises(Misuse, match="'place', which top needs itself"):
        stream.drop("rank").key_by("region").top(1, by="place", ties="rank")


def test_rows_that_do_not_reach_the_top_are_no_change_of_state() -> None:
    schema = pa.schema({"key": pa.string(), "value": pa.int64()})
    head = Top(["key"], schema, 1, ["value"])

    def take(epoch: int, *values: int) -> None:
        record = pa.record_batch({"key": ["a"] * len(values), "value": list(values)}, schema=schema)
        head.take(Moment(epoch, 0, 0, 0), [(0, ArrowBatch(record, buckets_of(record, ["key"])))])

    take(1, 5)
    assert head.snapshot(True).tables["best"].num_rows == 1
    take(2, 3, 4)
    assert head.snapshot(False).tables["best"].num_rows == 0
    for epoch in range(3, 400):
        take(epoch, epoch)
    assert head._store._chunks.held < 200, "rows out of date are let go"


# --- dedupe ------------------------------------------------------------------------------------------------------


def test_dedupe_gives_the_first_row_of_each_combination() -> None:
    rows = outcome(SALES, lambda s: s.dedupe("item"))
    assert shown(rows, "item", "at") == [("milk", at(10)), ("rice", at(30)), ("salt", at(40)), ("tea", at(0))]
    assert shown(outcome(SALES, lambda s: s.key_by("region").dedupe()), "region", "at") == sorted(
        [("east", at(0)), ("west", at(20)), (None, at(40))], key=repr
    )


def test_dedupe_keeps_time_and_key() -> None:
    def build(stream: Stream) -> Any:
        first = stream.key_by("region").dedupe("item")
        assert first.keys == ("region",)
        return first.window(tumbling("1m"), items=count())

    assert shown(outcome(SALES, build), "region", "items") == sorted([("east", 3), (None, 1)], key=repr)


def test_dedupe_refuses() -> None:
    stream = Flow("test").source("in", MemorySource([{"x": 1.5, "y": 1}]))
    with pytest.raises(Misuse, match=r"dedupe needs columns, or key_by\(\.\.\) before it"):
        stream.dedupe()
    with pytest.raises(Misuse, match="cannot key by 'x'"):
        stream.dedupe("x")
    with pytest.raises(Misuse, match="no column 'z'"):
        stream.dedupe("z")
    with pytest.raises(Misuse, match="must be longer than zero"):
        stream.dedupe("y", ttl="0s")


def test_after_its_time_a_key_is_forgotten() -> None:
    flow = Flow("test")
    flow.source("in", MemorySource([{"id": 1, "n": 0}])).dedupe("id", ttl="10s").named("once").collect("out")
    driver = Driver(flow)
    driver.feed("in", [{"id": 1, "n": 1}, {"id": 1, "n": 2}])
    driver.advance("6s")
    driver.feed("in", [{"id": 1, "n": 3}, {"id": 2, "n": 4}])
    driver.kill("once", 0)
    driver.advance("5s")  # 11 s after the first row of 1, however often it came since
    driver.feed("in", [{"id": 1, "n": 5}, {"id": 2, "n": 6}])
    assert [row["n"] for row in driver.output("out")] == [1, 4, 5]
    driver.assert_exactly_once()


# --- reduce ------------------------------------------------------------------------------------------------------


def test_reduce_folds_each_key() -> None:
    def add(folded: Any, row: Any) -> dict[str, Any]:
        return {"at": row.at, "region": row.region, "item": f"{folded.item}+{row.item}", "sold": folded.sold + row.sold}

    def build(stream: Stream) -> Any:
        table = stream.key_by("region").reduce(add)
        assert isinstance(table, seep.Table)
        return table

    for per_epoch in (1, 3, None):
        assert shown(outcome(SALES, build, per_epoch), "region", "item", "sold") == sorted(
            [("east", "tea+milk+rice+tea", 12), ("west", "tea+milk+rice", 9), (None, "salt", 2)], key=repr
        )


@dataclass
class Sale:
    at: datetime
    region: str | None
    item: str
    sold: int


def as_object(folded: Any, row: Any) -> Sale:
    return Sale(row.at.replace(tzinfo=None), row.region, "ü", folded.sold + row.sold)


def as_tuple(folded: Any, row: Any) -> tuple[Any, ...]:
    return (row.at.astimezone(UTC), row.region, "ü", folded.sold + row.sold)


@pytest.mark.parametrize("function", [as_object, as_tuple])
def test_a_fold_may_give_any_form_of_row(function: Callable[[Any, Any], Any]) -> None:
    rows = outcome(SALES[:2], lambda s: s.key_by("region").reduce(function))
    assert rows == [{"at": at(10), "region": "east", "item": "ü", "sold": 8}]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda folded, row: 1 / 0, "ZeroDivisionError"),
        (lambda folded, row: None, "the function gave None"),
        (lambda folded, row: {**row.as_dict(), "sold": "much"}, "which is not a int64"),
        (lambda folded, row: {**row.as_dict(), "sold": 2**63}, "which is not a int64"),
        (lambda folded, row: {**row.as_dict(), "region": "west"}, "the function changed the key from 'east' to 'west'"),
        (lambda folded, row: {**row.as_dict(), "item": "\ud800"}, "UnicodeEncodeError"),
        (lambda folded, row: {**row.as_dict(), "extra": 1}, "'extra'"),
    ],
)
def test_a_row_that_cannot_be_folded_is_a_dead_letter(bad: Callable[[Any, Any], Any], error: str) -> None:
    def fold(folded: Any, row: Any) -> Any:
        return bad(folded, row) if row.item == "milk" else {**row.as_dict(), "sold": folded.sold + row.sold}

    flow = Flow("test")
    table = flow.source("in", MemorySource(SALES[:4]), time="at").key_by("region").reduce(fold).named("sum")
    table.collect("out")
    table.errors.collect("errors")
    result = seep.run(flow, on="inline")
    assert shown(result["out"].to_pylist(), "region", "sold") == [("east", 6), ("west", 1)]
    [letter] = result["errors"].to_pylist()
    assert error in letter["error"]
    assert '"item": "milk"' in letter["row"]
    assert letter["operator"] == "sum"


def test_on_error() -> None:
    def fold(folded: Any, row: Any) -> Any:
        raise ValueError("no")

    assert len(outcome(SALES, lambda s: s.key_by("region").reduce(fold, on_error="skip"))) == 3
    with pytest.raises(Misuse, match="ValueError: no; fix the function"):
        outcome(SALES, lambda s: s.key_by("region").reduce(fold, on_error="fail"))
    stream = Flow("test").source("in", MemorySource(SALES))
    with pytest.raises(Misuse, match="reduce works by key"):
        stream.reduce(fold)
    with pytest.raises(Misuse, match="is no function"):
        stream.key_by("region").reduce("sum")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="on_error='ignore'"):
        stream.key_by("region").reduce(fold, on_error="ignore")


def test_warming_up_runs_no_code_of_the_user() -> None:
    def fold(folded: Any, row: Any) -> Any:
        raise AssertionError("called")

    flow = Flow("test")
    sales = flow.source("in", MemorySource(SALES), time="at")
    minute(sales).key_by("region").top(2, by="sold").named("closed").collect("a")
    sales.key_by("region").top(2, by="sold", ties="rank").named("running").collect("b")
    sales.key_by("region").top(2, by=pl.col("sold") * 2).named("computed").collect("c")
    sales.dedupe("item", ttl="1s").named("once").collect("d")
    sales.key_by("region").reduce(fold).named("sum").collect("e")
    graph = compile_flow(flow)
    for name in ("closed", "running", "computed", "once", "sum"):
        graph.nodes[name].make.warm()


# --- faults ------------------------------------------------------------------------------------------------------


def test_kills_and_scaling_do_not_show() -> None:
    def fold(folded: Any, row: Any) -> Any:
        return {**row.as_dict(), "sold": folded.sold + row.sold}

    flow = Flow("test")
    sales = flow.source("in", MemorySource(SALES), time="at")
    minute(sales).named("minute").key_by("region").top(2, by="sold").named("best").collect("closed")
    sales.key_by("region").top(2, by="sold", ties="rank").named("running").changes().collect("changes")
    sales.dedupe("item", ttl="30s").named("once").collect("first")
    sales.key_by("item").reduce(fold).named("sum").collect("sums")
    driver = Driver(flow, seed=3)
    regions = ["east", "west", None, "north"]
    for epoch in range(6):
        rows = [sale(epoch * 25 + i, regions[i % 4], f"item {(i * 7 + epoch) % 5}", i % 3) for i in range(12)]
        driver.feed("in", rows)
        if epoch == 1:
            for name in ("best", "running", "once", "sum"):
                driver.scale(name, 3)
        if epoch == 2:
            driver.checkpoint()
        if epoch == 3:
            driver.kill("running", 1)
            driver.kill("once", 0)
        if epoch == 4:
            driver.scale("running", 1)
            driver.advance("20s")
    driver.close()
    assert {name: bool(driver.output(name)) for name in ("closed", "changes", "first", "sums")} == dict.fromkeys(
        ("closed", "changes", "first", "sums"), True
    )
    driver.assert_exactly_once()


def test_windows_by_count_are_ranked_as_they_come() -> None:
    """Each key's ends with a row of its own: two of equal times are not one window, in whatever epochs they end."""
    rows = [{"k": k, "t": datetime(2024, 1, 1, second=s, tzinfo=UTC)} for s in (0, 9) for k in "xy"]
    for per_epoch in (1, None):
        flow = seep.Flow("counts")
        source = flow.source("s", seep.MemorySource(rows, per_epoch=per_epoch), time="t")
        windows = source.key_by("k").window(seep.count_window(2), n=seep.count())
        windows.key_by().top(1, by="n").collect("best")
        assert [(row["k"], row["rank"]) for row in seep.run(flow)["best"].to_pylist()] == [("x", 1)]
