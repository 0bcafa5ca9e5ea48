"""The groupings other than by key: where rows go, and that nothing but their place changes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.combine import worth_folding
from seep.errors import Misuse
from seep.flow.compile import compile_flow
from seep.flow.explain import explain, lines
from seep.flow.grouping import Shuffle, TwoChoices
from seep.model.arrow import ArrowBatch
from seep.model.keyspace import buckets_of
from seep.testing import Driver

ROWS: list[dict[str, Any]] = [{"k": f"k{i % 7}", "x": i} for i in range(60)]
GROUPINGS: dict[str, Any] = {
    "shuffle": lambda s: s.shuffle(),
    "to_one": lambda s: s.to_one(),
    "local": lambda s: s.local(),
    "route": lambda s: s.route(lambda row: row.x % 5),
    "two_choices": lambda s: s.key_by("k").two_choices(),
}


class Doubled(seep.Operator):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"x": 2 * row.x})


def flow_of(rows: Any = ROWS, per_epoch: int = 13) -> tuple[seep.Flow, Any]:
    flow = seep.Flow("grouped")
    return flow, flow.source("in", seep.MemorySource(rows, per_epoch=per_epoch))


def values(flow: seep.Flow, name: str = "out", column: str = "x") -> list[Any]:
    return sorted(seep.run(flow)[name].column(column).to_pylist())


@pytest.mark.parametrize("name", GROUPINGS)
def test_what_follows_a_grouping_gets_every_row_once(name: str) -> None:
    flow, rows = flow_of()
    sent = GROUPINGS[name](rows)
    sent.map(lambda row: row.x + 1, schema=pa.schema({"x": pa.int64()})).collect("mapped")
    sent.with_columns(y=pl.col("x") * 2).collect("wider")
    found = seep.run(flow)
    assert sorted(found["mapped"].column("x").to_pylist()) == list(range(1, 61))
    assert sorted(found["wider"].column("y").to_pylist()) == [2 * i for i in range(60)]


@pytest.mark.parametrize("name", [n for n in GROUPINGS if n != "two_choices"])
def test_an_operator_takes_a_grouped_stream_without_a_node_between(name: str) -> None:
    flow, rows = flow_of()
    GROUPINGS[name](rows).apply(Doubled, out=pa.schema({"x": pa.int64()})).named("double").collect("out")
    assert list(compile_flow(flow).nodes) == ["in", "double", "out"]
    assert values(flow) == [2 * i for i in range(60)]


def test_a_grouping_that_is_named_or_scaled_is_a_node() -> None:
    flow, rows = flow_of()
    rows.shuffle().named("spread").scale(start=2).collect("out")
    graph = compile_flow(flow)
    assert graph.nodes["spread"].start == 2
    assert values(flow) == list(range(60))


def test_a_key_makes_a_grouping_before_it_needless() -> None:
    flow, rows = flow_of()
    rows.shuffle().local().to_one().key_by("k").aggregate(n=seep.count()).named("count").collect("out")
    assert list(compile_flow(flow).nodes) == ["in", "count", "out"]


def test_local_keeps_what_a_shuffle_did() -> None:
    flow, rows = flow_of()
    rows.shuffle().local().collect("out")
    graph = compile_flow(flow)
    (route,) = graph.nodes["in"].make.tails["out"]
    assert list(graph.nodes) == ["in", "out"]
    assert route.grouping == Shuffle()


def test_behind_a_grouping_there_is_no_key() -> None:
    _, rows = flow_of()
    with pytest.raises(Misuse, match="works by key"):
        rows.key_by("k").shuffle().aggregate(n=seep.count())


def test_shuffle_is_even_for_any_ranges() -> None:
    record = pa.record_batch({"x": np.arange(1000)})
    for epoch in (1, 2, 77):
        targets = Shuffle().targets(ArrowBatch(record, np.full(1000, 1365, np.uint16)), epoch)
        for parts in (2, 3, 4, 5, 16):
            counts = np.histogram(targets, np.linspace(0, 4096, parts + 1))[0]
            assert counts.max() - counts.min() <= 12


def test_shuffle_spreads_single_rows_over_epochs_and_origins() -> None:
    one = pa.record_batch({"x": [1]})
    over_epochs = [int(Shuffle().targets(ArrowBatch(one, np.zeros(1, np.uint16)), e)[0]) for e in range(400)]
    counts = np.histogram(over_epochs, np.linspace(0, 4096, 5))[0]
    assert counts.max() - counts.min() <= 4
    many = pa.record_batch({"x": np.zeros(4096)})
    over_origins = Shuffle().targets(ArrowBatch(many, np.arange(4096, dtype=np.uint16)), 9)
    assert len(set(over_origins.tolist())) == 4096


def test_route_sends_where_a_key_would() -> None:
    flow, rows = flow_of()
    rows.route(lambda row: row.k).collect("routed")
    graph = compile_flow(flow)
    intake = graph.nodes["in"].make()
    (sent,) = intake.read(0, None, None, 100, 0).outputs.values()
    assert sent.record.schema.names == ["k", "x"]
    assert sent.buckets.tolist() == buckets_of(sent.record, ("k",)).tolist()


def test_route_takes_values_of_several_types_and_nulls() -> None:
    flow, rows = flow_of()
    rows.route(lambda row: [row.x, row.k, None, True, b"x"][row.x % 5]).collect("out")
    assert values(flow) == list(range(60))


def test_a_route_to_a_tuple_is_told_what_to_do() -> None:
    flow, rows = flow_of()
    routed = rows.route(lambda row: (row.k, row.x))
    routed.collect("out")
    routed.errors.collect("errors")
    errors = set(seep.run(flow)["errors"].column("error").to_pylist())
    assert all("route must give one value that can be a key, not (" in error for error in errors)
    assert all(error.endswith("join its parts") for error in errors)


def test_a_route_that_fails_gives_dead_letters() -> None:
    flow, rows = flow_of()

    def place(row: Any) -> Any:
        if row.x == 3:
            raise ValueError("no place")
        return 1.5 if row.x == 4 else row.x

    routed = rows.route(place)
    routed.collect("out")
    routed.errors.collect("errors")
    found = seep.run(flow)
    assert sorted(found["out"].column("x").to_pylist()) == [0, 1, 2, *range(5, 60)]
    reasons = found["errors"].column("error").to_pylist()
    assert reasons[0] == "ValueError: no place"
    assert "can be a key" in reasons[1]
    assert set(found["errors"].column("operator").to_pylist()) == {"in.route"}


def test_two_choices_gives_each_key_two_places_and_balances_them() -> None:
    rng = np.random.default_rng(3)
    keys = np.minimum(rng.zipf(1.4, 20_000), 10_000)
    batch = ArrowBatch(pa.record_batch({"k": keys}), np.zeros(20_000, np.uint16))
    targets = TwoChoices(("k",)).targets(batch, 1)
    places: dict[int, set[int]] = {}
    for key, target in zip(keys.tolist(), targets.tolist(), strict=True):
        places.setdefault(key, set()).add(target)
    assert max(map(len, places.values())) == 2
    plain = (TwoChoices(("k",)).hashes(batch) >> np.uint64(52)).astype(int)
    quarters = [np.histogram(found, np.linspace(0, 4096, 5))[0].max() / 20_000 for found in (plain, targets)]
    assert quarters[1] < 0.32 < 0.38 < quarters[0]


def test_aggregates_behind_two_choices_are_exact() -> None:
    flow, rows = flow_of()
    rows.key_by("k").two_choices().aggregate(n=seep.count(), sum=seep.total("x"), most=seep.maximum("x")).collect("out")
    assert list(compile_flow(flow).nodes) == ["in", "two_choices-k", "aggregate-k", "out"]
    found = {row["k"]: (row["n"], row["sum"], row["most"]) for row in seep.run(flow)["out"].to_pylist()}
    numbers: dict[str, list[int]] = {}
    for row in ROWS:
        numbers.setdefault(row["k"], []).append(row["x"])
    assert found == {k: (len(x), sum(x), max(x)) for k, x in numbers.items()}


def test_windows_behind_two_choices_are_exact() -> None:
    rows: list[dict[str, Any]] = [{"k": "a" if i % 3 else f"b{i}", "at": i * 100, "x": i} for i in range(100)]
    flow = seep.Flow("w")
    source = flow.source("in", seep.MemorySource(rows, per_epoch=7), time=("at", "ms"))
    source.key_by("k").two_choices().window(seep.tumbling("1s"), n=seep.count()).collect("out")
    found: Counter[tuple[str, int]] = Counter()
    for row in seep.run(flow)["out"].to_pylist():
        found[row["k"], int(row["window_start"].timestamp())] += row["n"]
    assert found == Counter((row["k"], row["at"] // 1000) for row in rows)


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        (lambda s: s.aggregate(m=seep.total(pl.col("x") * 1.5)).collect("out"), "adds floats"),
        (lambda s: s.aggregate(f=seep.first("x"), n=seep.count()).collect("out"), "f = first.'x'. goes by arrival"),
        (lambda s: s.aggregate(l=seep.last("x")).collect("out"), "l = last.'x'. goes by arrival"),
        (lambda s: s.table().collect("out"), "needs all rows of a key"),
        (lambda s: s.apply(Doubled, out=pa.schema({"x": pa.int64()})).collect("out"), "needs all rows of a key"),
    ],
)
def test_verbs_that_do_not_merge_are_refused_behind_two_choices(verb: Any, why: str) -> None:
    flow, rows = flow_of()
    verb(rows.key_by("k").two_choices())
    with pytest.raises(Misuse, match=why):
        compile_flow(flow)


def test_the_first_of_a_window_is_refused_behind_two_choices() -> None:
    flow = seep.Flow("first")
    rows = [{"k": "a", "v": v, "at": datetime(2024, 1, 1, tzinfo=UTC)} for v in (0, 1)]
    source = flow.source("in", seep.MemorySource(rows), time="at")
    source.key_by("k").two_choices().window(seep.tumbling("1s"), f=seep.first("v")).collect("out")
    with pytest.raises(Misuse, match=r"suits aggregates that merge exactly; window: f = first\('v'\) goes by arrival"):
        compile_flow(flow)


def test_two_choices_needs_a_key() -> None:
    _, rows = flow_of()
    with pytest.raises(Misuse, match="two_choices works by key"):
        rows.two_choices()


def test_a_table_has_no_groupings() -> None:
    _, rows = flow_of()
    table = rows.key_by("k").table()
    for verb in ("shuffle", "to_one", "local", "route", "two_choices"):
        with pytest.raises(Misuse, match=r"\.changes\(\)"):
            getattr(table, verb)


@pytest.mark.parametrize("name", GROUPINGS)
def test_kills_and_scaling_do_not_show(name: str) -> None:
    flow, rows = flow_of()
    sent = GROUPINGS[name](rows).named("there")
    sent.filter(pl.col("x") % 3 > 0).key_by("k").aggregate(n=seep.count(), sum=seep.total("x")).named("sum").collect(
        "sums"
    )
    sent.collect("rows")
    driver = Driver(flow, seed=11)
    driver.feed("in", ROWS[:10])
    driver.scale("there", 3)
    driver.feed("in", ROWS[10:30])
    driver.kill("there", 1)
    driver.feed("in", ROWS[30:33])
    driver.scale("sum", 2)
    driver.scale("there", 2)
    driver.feed("in", ROWS[33:])
    driver.kill("sum", 0)
    driver.close()
    assert sorted(row["x"] for row in driver.output("rows")) == list(range(60))
    driver.assert_exactly_once()


def test_one_hot_key_among_unique_ones_is_folded() -> None:
    unique = [f"k{i}" for i in range(4000)]
    hot = [*unique[:3700], *["hot"] * 300]
    for columns in (["k"], ["k", "y"]):
        batches = [pa.record_batch({"k": keys, "y": [1] * 4000}) for keys in (unique, hot)]
        assert [worth_folding(batch, columns) for batch in batches] == [False, True]
    few = pa.record_batch({"k": ["hot"] * 9 + unique[:20]})
    assert not worth_folding(few, ["k"])


def test_the_plan_says_how_rows_are_sent_and_what_runs_where() -> None:
    flow, rows = flow_of([{"k": "a", "x": 1, "unread": "u"}])
    rows.key_by("k").two_choices().aggregate(n=seep.total("x")).named("sum").collect("sums")
    rows.shuffle().filter(pl.col("x") > 0).key_by("k").table().named("latest").collect("rows")
    rows.route(lambda row: row.x).collect("routed")
    said = {entry["node"]: list(lines(entry)) for entry in explain(compile_flow(flow))}
    assert said["two_choices-k"][1:] == [
        "  rows of in are sent by key (k), each key to the less loaded of two places",
        "  columns left behind, since nobody reads them: unread",
    ]
    assert said["sum"][1:] == [
        "  rows of two_choices-k are sent by key (k)",
        "  rows are folded before they travel, by two_choices-k: its aggregates merge exactly in any grouping",
        "  hot keys: folded at the sender, to one part for each sender, epoch and window",
        "  columns left behind, since nobody reads them: unread",
    ]
    assert said["shuffle"][1:] == [
        "  rows of in are sent evenly, by origin and position",
        "  runs filter itself, since it needs no state",
    ]
    assert said["latest"][2] == (
        "  hot keys: all rows of a key go to one place, since table takes a key's rows one after the other"
    )
    assert said["routed"][1] == "  rows of in are sent by the value of route's function"
    assert said["in"][1:] == ["  runs route itself, since it needs no state"]


@pytest.mark.parametrize("name", GROUPINGS)
def test_the_loops_can_be_loaded_ahead(name: str) -> None:
    flow, rows = flow_of()
    GROUPINGS[name](rows).named("there").collect("out")
    compile_flow(flow).nodes["there"].make.warm()


def test_to_a_grouping_travels_only_what_is_read_behind_it() -> None:
    flow, rows = flow_of([{"k": "a", "x": 1, "y": 2, "z": 3}])
    halves = rows.key_by("k").two_choices()
    halves.aggregate(x=seep.total("x")).collect("xs")
    halves.aggregate(y=seep.total("y")).collect("ys")
    rows.shuffle().map(lambda row: row.z, schema=pa.schema({"z": pa.int64()})).collect("zs")
    rows.shuffle().named("all").collect("rows")
    graph = compile_flow(flow)
    reading = graph.nodes["in"].make().read(0, None, None, 10, 0)
    sent = {edge.target: reading.outputs[edge.name].record.schema.names for edge in graph.outputs("in")}
    assert sent == {"two_choices-k": ["k", "x", "y"], "shuffle": ["k", "x", "y", "z"], "all": ["k", "x", "y", "z"]}
    found = seep.run(flow)
    assert found["ys"].to_pylist() == [{"k": "a", "y": 2}]
    assert found["rows"].to_pylist() == [{"k": "a", "x": 1, "y": 2, "z": 3}]
