"""Tables from the flow a user writes to the content and changes that come out; what is refused, and how."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.changes import change_schema
from operators.foreign_join import ForeignJoin
from operators.kept_rows import KeptRows
from operators.retract import Retract, signed_schema
from operators.table_aggregate import TableAggregate
from operators.table_join import TableJoin
from operators.table_lookup import TableLookup
from operators.table_top import TableTop
from seep.flow.check import check
from seep.flow.compile import compile_flow, name_vertices
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.keyspace import buckets_of
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
Run = Callable[..., dict[str, pa.Table]]
Rows = list[dict[str, Any]]


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def source(flow: seep.Flow, name: str, rows: Rows, per_epoch: int | None = 1, **settings: Any) -> seep.Stream:
    return flow.source(name, seep.MemorySource(rows, per_epoch=per_epoch), **settings)


def everywhere(run: Run, flow: seep.Flow, name: str = "out") -> Rows:
    """The rows, the same for every partitioning and over every save and load."""
    wanted: Rows = run(flow)[name].to_pylist()
    assert run(flow, partitions=3)[name].to_pylist() == wanted
    assert run(flow, partitions=2, reload=True)[name].to_pylist() == wanted
    return wanted


SHOPS: Rows = [
    {"shop": "a", "town": "Ulm", "size": 1},
    {"shop": "b", "town": "Bonn", "size": 2},
    {"shop": "a", "town": "Ulm", "size": 1},
    {"shop": "a", "town": "Köln", "size": 3},
    {"shop": "b", "town": "Bonn", "size": 0},
]
SALES: Rows = [{"store": store, "size": i} for i, store in enumerate(["a", "b", "c", "a", "b"])]


def both(flow: seep.Flow) -> tuple[seep.Stream, seep.Table]:
    sales = source(flow, "sales", SALES)
    shops = source(flow, "shops", SHOPS).key_by("shop").table(deleted=pl.col("size") == 0)
    return sales, shops


# --- a Stream with a Table ---------------------------------------------------------------------------------------


def test_a_row_meets_the_table_of_its_own_epoch(run: Run) -> None:
    flow = seep.Flow("test")
    sales, shops = both(flow)
    sales.key_by("store").join_table(shops).collect("out")
    assert everywhere(run, flow) == [
        {"store": "a", "size": 0, "town": "Ulm", "size_right": 1},
        {"store": "b", "size": 1, "town": "Bonn", "size_right": 2},
        {"store": "a", "size": 3, "town": "Köln", "size_right": 3},
    ]


def test_a_left_join_keeps_rows_that_find_none(run: Run) -> None:
    flow = seep.Flow("test")
    sales, shops = both(flow)
    sales.key_by("store").join_table(shops, how="left").collect("out")
    rows = {(row["store"], row["size"]): row["town"] for row in everywhere(run, flow)}
    assert rows == {("a", 0): "Ulm", ("b", 1): "Bonn", ("c", 2): None, ("a", 3): "Köln", ("b", 4): None}


def test_a_null_key_matches_nothing(run: Run) -> None:
    flow = seep.Flow("test")
    schema = pa.schema({"k": pa.string(), "n": pa.int64()})
    stream = flow.source("stream", seep.MemorySource(pa.Table.from_pylist([{"k": None, "n": 1}], schema=schema)))
    table = flow.source("table", seep.MemorySource(pa.Table.from_pylist([{"k": None, "n": 2}], schema=schema)))
    held = table.key_by("k").table()
    stream.key_by("k").join_table(held, how="left").collect("left")
    stream.key_by("k").join_table(held).collect("inner")
    stream.key_by("k").table().join(held, how="full").collect("full")
    found = run(flow)
    assert found["left"].to_pylist() == [{"k": None, "n": 1, "n_right": None}]
    assert found["inner"].num_rows == 0
    assert found["full"].to_pylist() == [{"k": None, "n": 1, "n_right": None}]


def test_a_joined_stream_keeps_key_and_time(run: Run) -> None:
    flow = seep.Flow("test")
    rows = [{"k": "ab"[i % 2], "ms": i * 1000} for i in range(6)]
    stream = source(flow, "stream", rows, time=("ms", "ms"))
    table = source(flow, "table", [{"key": "a", "v": 7}], None).key_by("key").table()
    joined = stream.key_by("k").join_table(table)
    assert joined.keys == ("k",)
    joined.window(seep.tumbling("2s"), n=seep.count()).collect("out")
    assert [row["n"] for row in everywhere(run, flow)] == [1, 1, 1]


def test_behind_a_union_all_rows_are_of_the_stream(run: Run) -> None:
    flow = seep.Flow("test")
    sales, shops = both(flow)
    more = source(flow, "more", [{"store": "a", "size": 9}])
    sales.union(more).key_by("store").join_table(shops).collect("out")
    assert sorted(row["size"] for row in everywhere(run, flow)) == [0, 1, 3, 9]


# --- a Table with a Table ----------------------------------------------------------------------------------------


def test_a_table_join_follows_both_sides(run: Run) -> None:
    flow = seep.Flow("test")
    sales, shops = both(flow)
    joined = sales.key_by("store").table().join(shops, how="left").named("joined")
    joined.changes().collect("changes")
    joined.collect("out")
    assert everywhere(run, flow, "changes") == [
        {"store": "a", "size": 0, "town": "Ulm", "size_right": 1, "change": "insert"},
        {"store": "b", "size": 1, "town": "Bonn", "size_right": 2, "change": "insert"},
        {"store": "c", "size": 2, "town": None, "size_right": None, "change": "insert"},
        {"store": "a", "size": 3, "town": "Köln", "size_right": 3, "change": "update"},
        {"store": "b", "size": 4, "town": None, "size_right": None, "change": "update"},
    ]
    assert {row["store"]: row["town"] for row in everywhere(run, flow)} == {"a": "Köln", "b": None, "c": None}


def test_a_moved_foreign_key_leaves_no_stale_row(run: Run) -> None:
    flow = seep.Flow("test")
    orders = source(flow, "orders", [{"id": 1, "shop": "a"}, {"id": 1, "shop": "b"}, {"id": 1, "shop": "nowhere"}])
    shops = source(flow, "shops", [{"name": name, "town": name.upper()} for name in "ab"], None)
    joined = orders.key_by("id").table().join(shops.key_by("name").table(), on="shop").named("orders-shops")
    joined.changes().collect("out")
    assert everywhere(run, flow) == [
        {"id": 1, "shop": "a", "town": "A", "change": "insert"},
        {"id": 1, "shop": "b", "town": "B", "change": "update"},
        {"id": 1, "shop": "b", "town": "B", "change": "delete"},
    ]


def test_helpers_are_named_after_their_verb() -> None:
    flow = seep.Flow("test")
    orders = source(flow, "orders", [{"id": 1, "shop": "a"}]).key_by("id").table().named("latest")
    shops = source(flow, "shops", [{"name": "a"}]).key_by("name").table().named("known")
    orders.join(shops, on="shop").named("located").collect("out")
    orders.key_by("shop").aggregate(n=seep.count()).named("busy").collect("n")
    names = set(name_vertices(flow).values())
    assert {"located-rows", "located-by-shop", "located", "busy-rows", "busy"} <= names
    assert check(flow) == []


# --- aggregates over Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [{}, {"most": seep.maximum("size")}], ids=["subtracted", "anew"])
def test_an_aggregate_takes_the_old_row_back(run: Run, extra: dict[str, Any]) -> None:
    flow = seep.Flow("test")
    _, shops = both(flow)
    towns = shops.key_by("town").aggregate(n=seep.count(), space=seep.total("size"), **extra)
    towns.changes().select("town", "n", "space", "change").collect("out")
    assert sorted(map(str, everywhere(run, flow))) == sorted(
        map(
            str,
            [
                {"town": "Ulm", "n": 1, "space": 1, "change": "insert"},
                {"town": "Bonn", "n": 1, "space": 2, "change": "insert"},
                {"town": "Ulm", "n": 1, "space": 1, "change": "delete"},
                {"town": "Köln", "n": 1, "space": 3, "change": "insert"},
                {"town": "Bonn", "n": 1, "space": 2, "change": "delete"},
            ],
        )
    )


def test_one_group_over_all_and_an_aggregate_of_aggregates(run: Run) -> None:
    flow = seep.Flow("test")
    counted = source(flow, "sales", SALES).key_by("store").aggregate(n=seep.count())
    counted.key_by().aggregate(stores=seep.count(), sold=seep.total("n")).collect("out")
    counted.key_by("n").aggregate(stores=seep.count()).collect("histogram")
    assert everywhere(run, flow) == [{"stores": 3, "sold": 5}]
    assert sorted(map(str, everywhere(run, flow, "histogram"))) == ["{'n': 1, 'stores': 1}", "{'n': 2, 'stores': 2}"]


def test_a_float_total_does_not_depend_on_how_the_rows_came() -> None:
    schema = pa.schema({"id": pa.int64(), "g": pa.string(), "x": pa.float64()})
    signed = Retract(["id"], schema).schema

    def result(*steps: tuple[int, float, int]) -> float:
        head = TableAggregate(["g"], ["id"], schema, {"sum": seep.total("x")})
        for epoch, (number, x, sign) in enumerate(steps, 1):
            record = pa.RecordBatch.from_pylist([{"id": number, "g": "a", "x": x, "__sign": sign}], schema=signed)
            head.take(Moment(epoch, 0, 0, 0), [(0, ArrowBatch(record, buckets_of(record, ["g"])))])
        found: float = head.content().column("sum")[0].as_py()
        return found

    straight = result((1, 0.1, 1), (2, 1e16, 1), (3, -1e16, 1))
    winding = result((3, -1e16, 1), (4, 5.5, 1), (2, 1e16, 1), (4, 5.5, -1), (1, 0.1, 1))
    assert straight == winding


# --- by event time -----------------------------------------------------------------------------------------------

RATES: Rows = [
    {"currency": "eur", "rate": rate, "at": at(seconds)} for rate, seconds in ((10, 0), (12, 10), (11, 5), (13, 20))
]


def test_with_a_history_the_latest_is_by_event_time(run: Run) -> None:
    flow = seep.Flow("test")
    rates = source(flow, "rates", RATES, time="at", lateness="1m").key_by("currency").table(history="1m")
    rates.changes().collect("out")
    assert [(row["rate"], row["change"]) for row in everywhere(run, flow)] == [
        (10, "insert"),
        (12, "update"),
        (13, "update"),
    ]


@pytest.mark.parametrize("per_epoch", [1, 2, None])
def test_as_of_joins_what_was_valid_then(run: Run, per_epoch: int | None) -> None:
    """However the input is cut, as long as nothing is late."""
    flow = seep.Flow("test")
    rates = source(flow, "rates", RATES, per_epoch, time="at", lateness="1m").key_by("currency").table(history="1m")
    asked = [-1, 0, 4, 5, 9, 10, 30]
    orders = source(flow, "orders", [{"c": "eur", "at": at(s)} for s in asked], per_epoch, time="at")
    orders.key_by("c").join_table(rates, how="left", as_of=True).collect("out")
    assert [row["rate"] for row in everywhere(run, flow)] == [None, 10, 10, 11, 11, 12, 13]


def test_as_of_reads_times_of_any_unit(run: Run) -> None:
    flow = seep.Flow("test")
    rates = source(flow, "rates", [{"c": "eur", "rate": i, "ms": i * 1000} for i in range(5)], None, time=("ms", "ms"))
    orders = source(flow, "orders", [{"c": "eur", "s": i} for i in (1, 3)], None, time=("s", "s"))
    table = rates.key_by("c").table(history="1m")
    table.collect("table")
    orders.key_by("c").join_table(table, as_of=True).collect("out")
    assert everywhere(run, flow) == [
        {"c": "eur", "s": 1, "rate": 1, "ms": 1000},
        {"c": "eur", "s": 3, "rate": 3, "ms": 3000},
    ]
    assert everywhere(run, flow, "table") == [{"c": "eur", "rate": 4, "ms": 4000}]


def test_versions_follow_the_verbs_that_keep_a_table(run: Run) -> None:
    flow = seep.Flow("test")
    rates = source(flow, "rates", RATES, None, time="at", lateness="1m").key_by("currency").table(history="1m")
    orders = source(flow, "orders", [{"c": "eur", "at": at(s)} for s in (1, 6, 11, 30)], None, time="at")
    chosen = rates.with_columns(half=pl.col("rate") / 2).filter(pl.col("rate") != 11).drop("at").rename(r="rate")
    orders.key_by("c").join_table(chosen.select("currency", "half", "r"), how="left", as_of=True).collect("out")
    assert [(row["half"], row["r"]) for row in everywhere(run, flow)] == [(5, 10), (None, None), (6, 12), (6.5, 13)]
    assert run(flow)["out"].column_names == ["c", "at", "half", "r"]


def test_rows_older_than_the_history_are_late() -> None:
    flow = seep.Flow("test")
    rates = source(flow, "rates", RATES, time="at").key_by("currency").table(history="10s")
    orders = source(flow, "orders", [{"c": "eur", "at": at(0)}], time="at")
    orders.key_by("c").join_table(rates, as_of=True).named("priced").collect("out")
    driver = Driver(flow)
    driver.feed("rates", [*RATES, {"currency": "eur", "rate": 14, "at": at(60)}])
    driver.feed("orders", [{"c": "eur", "at": at(60)}])
    assert driver.output("out") == [], "the watermark has not passed it"
    driver.feed("orders", [{"c": "eur", "at": at(51)}, {"c": "eur", "at": at(49)}])
    assert [row["rate"] for row in driver.output("out")] == [13], "behind the watermark, but within the history"
    assert [row["at"] for row in driver.late("priced")] == [at(49)]
    driver.close()
    assert [row["rate"] for row in driver.output("out")] == [13, 14]


# --- through faults ----------------------------------------------------------------------------------------------


def test_kills_and_scaling_do_not_show() -> None:
    flow = seep.Flow("test", checkpoint="200ms")
    orders = source(flow, "orders", [{"id": 1, "shop": "a", "n": 1, "at": START}], time="at", lateness="1m")
    shops = source(flow, "shops", [{"name": "a", "town": "Ulm", "at": START}], time="at", lateness="1m")
    latest = orders.key_by("id").table(deleted=pl.col("n") == 0).named("orders-now")
    known = shops.key_by("name").table(history="5m").named("shops-now")
    located = latest.join(known, on="shop", how="left").named("located")
    located.changes().collect("located-changes")
    located.key_by("town").aggregate(n=seep.count(), sum=seep.total("n"), most=seep.maximum("n")).named(
        "towns"
    ).collect("per-town")
    latest.join(latest.select("id", "n"), how="full").named("twice").changes().collect("both")
    orders.key_by("shop").join_table(known, how="left").named("enriched").collect("now")
    orders.key_by("shop").join_table(known, how="left", as_of=True).named("as-of").collect("then")
    driver = Driver(flow, seed=3)
    names = ["located", "located-by-shop", "located-rows", "towns", "twice", "enriched", "as-of", "shops-now"]
    for step, name in enumerate(names):
        driver.feed("shops", [{"name": "abc"[step % 3], "town": f"t{step % 4}", "at": at(step)}])
        driver.feed(
            "orders",
            [{"id": i, "shop": "abcd"[(i + step) % 4], "n": (i * step) % 3, "at": at(step * 10 + i)} for i in range(6)],
        )
        if step % 2:
            driver.scale(name, 2)
        driver.kill(name, 0)
    driver.close()
    driver.assert_exactly_once()
    assert len(driver.output("then")) == 6 * len(names)


# --- refused -----------------------------------------------------------------------------------------------------


def refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(seep.Misuse, match=match) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_what_is_refused_and_why() -> None:
    flow = seep.Flow("test")
    sales, shops = both(flow)
    keyed = sales.key_by("store")
    vertices = len(flow.vertices)
    refused(lambda: sales.join_table(shops), r"call key_by\(\.\.\) before it")
    refused(lambda: keyed.join_table(keyed), "is no Table")  # type: ignore[arg-type]
    refused(lambda: keyed.join_table(shops, how="full"), "choose 'inner' or 'left'")
    refused(lambda: sales.key_by("size").join_table(shops), "they pair by position and need equal types")
    refused(lambda: keyed.join_table(shops, as_of=True), r"table\(history='5m'\)")
    refused(lambda: keyed.table(history="1m"), "has no event time")
    refused(lambda: shops.join(shops, how="outer"), "inner, left, right, full")
    refused(lambda: shops.join(shops, on="nothing"), "unknown column 'nothing'")
    refused(lambda: shops.join(shops, on="town", how="right"), "with on= choose 'inner' or 'left'")
    refused(lambda: shops.key_by("town").window(seep.tumbling("1m")), r"take \.changes\(\)\.window")
    refused(lambda: shops.join_table(shops), r"\.changes\(\)\.join_table")
    refused(lambda: shops.key_by("nothing"), "no column 'nothing'")
    refused(lambda: shops.key_by("town").aggregate(), "no aggregates are given")
    refused(lambda: shops.key_by("town").aggregate(town=seep.count()), "is taken already")
    refused(lambda: shops.key_by("town").aggregate(n=seep.total("nothing")), "reads 'nothing'")
    refused(lambda: shops.key_by("town").aggregate(n=seep.total("town")), "cannot take a string")
    assert len(flow.vertices) == vertices, "what is refused leaves nothing behind"


def test_a_second_collision_is_refused() -> None:
    flow = seep.Flow("test")
    stream = source(flow, "s", [{"k": 1, "v": 1, "v_right": 2}]).key_by("k")
    table = source(flow, "t", [{"k": 1, "v": 1}]).key_by("k").table()
    refused(lambda: stream.join_table(table), "two columns would be called 'v_right'; rename one")


# --- underneath --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 500])
def test_kept_rows_against_a_dict(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit is not None:
        monkeypatch.setattr("operators.chunks._LARGE_BYTES", limit)
    schema = pa.schema({"n": pa.int64(), "t": pa.string()})
    kept, wanted, random = KeptRows(schema, 8), dict[int, int](), np.random.default_rng(7)
    kept.grow(300)
    for step in range(300):
        slots = random.choice(300, random.integers(0, 12), replace=False)
        if step % 3 == 2:
            kept.drop(slots)
            wanted = {slot: n for slot, n in wanted.items() if slot not in slots}
        else:
            rows = [{"n": step * 1000 + int(slot), "t": str(slot)} for slot in slots]
            kept.put(slots, pa.RecordBatch.from_pylist(rows, schema=schema))
            wanted |= {int(slot): row["n"] for slot, row in zip(slots, rows, strict=True)}
        asked = random.integers(-1, 300, 20)
        assert kept.take(asked).column("n").to_pylist() == [wanted.get(int(slot)) for slot in asked]
        assert kept.has(asked).tolist() == [int(slot) in wanted for slot in asked]
        assert len(kept) == len(wanted)
    assert limit is not None or len(kept._chunks._chunks) < 30, "few chunks, however many epochs"


def test_operators_on_tables_are_warmed() -> None:
    flow = seep.Flow("test")
    stream = source(flow, "s", [{"k": "a", "v": 1, "at": START}], time="at")
    table = source(flow, "t", [{"k": "a", "v": 1, "f": "a", "at": START}], time="at").key_by("k").table(history="1m")
    stream.key_by("k").join_table(table, as_of=True).collect("1")
    stream.key_by("k").join_table(table).collect("2")
    table.join(table, on="f").collect("3")
    table.join(table, how="full").collect("4")
    table.key_by("f").aggregate(n=seep.count(), most=seep.maximum("v")).collect("5")
    table.key_by("f").top(2, by="v").collect("6")
    for node in compile_flow(flow).nodes.values():
        if node.kind == "operator":
            node.make.warm()


ROWS = pa.schema({"k": pa.int64(), "f": pa.int64(), "v": pa.int64()})
WIRE = change_schema(ROWS)
HEADS: dict[str, Callable[[], Any]] = {
    "lookup": lambda: TableLookup((["k"], ["k"]), (WIRE, ROWS)),
    "join": lambda: TableJoin((["k"], ["k"]), (WIRE, WIRE), "full"),
    "foreign": lambda: ForeignJoin((["k"], "f"), (WIRE, signed_schema(ROWS)), ["k"]),
    "retract": lambda: Retract(["k"], ROWS),
    "top": lambda: TableTop(["f"], ["k"], ROWS, 2, ["v"]),
    "aggregate": lambda: TableAggregate(["f"], ["k"], ROWS, {"most": seep.maximum("v")}),
}


@pytest.mark.parametrize("name", HEADS)
def test_an_increment_holds_only_what_changed(name: str) -> None:
    head = HEADS[name]()

    def feed(numbers: range, epoch: int) -> None:
        rows = [{"k": i, "f": i, "v": epoch, "change": "insert", "__sign": 1} for i in numbers]
        batches = [
            ArrowBatch(record := pa.RecordBatch.from_pylist(rows, schema=schema), buckets_of(record, keys))
            for keys, schema in head.ports
        ]
        head.take(Moment(epoch, 0, 0, 0), list(enumerate(batches)))

    feed(range(1000), 1)
    assert {table.num_rows for table in head.snapshot(True).tables.values()} == {1000}
    feed(range(3), 2)
    assert {table.num_rows for table in head.snapshot(False).tables.values()} == {3}
    assert {table.num_rows for table in head.snapshot(False).tables.values()} == {0}
