"""Rows that expressions on Tables and users' own aggregates fail on: dead letters, the rest unharmed, and neither cuts
nor partitions show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from seep import Flow, MemorySource, Misuse, count, count_window, session, sliding, top, total, tumbling
from seep.testing import Driver

Run = Callable[..., dict[str, pa.Table]]
Rows = list[dict[str, Any]]
NUMBER = pl.col("n").cast(pl.Int64)


def letters(table: pa.Table) -> Rows:
    return [json.loads(row) for row in table.column("row").to_pylist()]


def everywhere(run: Run, build: Callable[[int | None], Flow], names: tuple[str, ...]) -> dict[str, Rows]:
    """The same for every partitioning and over every save and load."""
    wanted = {name: run(build(1))[name].to_pylist() for name in names}
    for given in ({"partitions": 3}, {"partitions": 2, "reload": True}):
        again = run(build(1), **given)
        assert {name: again[name].to_pylist() for name in names} == wanted
    return wanted


# --- Tables ------------------------------------------------------------------------------------------------------

CHANGES = [
    {"k": "a", "n": "1"},
    {"k": "b", "n": "2"},
    {"k": "a", "n": "one"},
    {"k": "c", "n": "three"},
    {"k": "b", "n": "4"},
    {"k": "c", "n": "5"},
    {"k": "c", "n": "6"},
    {"k": "d", "n": "-"},
]
TABLE_VERBS: dict[str, tuple[Callable[..., Any], Rows]] = {
    "select": (
        lambda table, **given: table.select("k", number=NUMBER, **given),
        [{"k": "b", "number": 4}, {"k": "c", "number": 6}],
    ),
    "with_columns": (
        lambda table, **given: table.with_columns(number=NUMBER, **given).select("k", "number"),
        [{"k": "b", "number": 4}, {"k": "c", "number": 6}],
    ),
    "filter": (
        lambda table, **given: table.filter(NUMBER > 4, **given),
        [{"k": "c", "n": "6"}],
    ),
    "filter-function": (
        lambda table, **given: table.filter(lambda row: int(row.n) > 4, **given),
        [{"k": "c", "n": "6"}],
    ),
    "aggregate": (
        lambda table, **given: table.key_by().aggregate(sum=total(NUMBER), rows=count(), **given),
        [{"sum": 10, "rows": 2}],
    ),
    "top": (
        lambda table, **given: table.key_by().top(2, by=NUMBER, **given),
        [{"k": "c", "n": "6", "rank": 1}, {"k": "b", "n": "4", "rank": 2}],
    ),
}


def table_flow(verb: str, per_epoch: int | None, **given: Any) -> tuple[Flow, Any]:
    flow = Flow("tables")
    table = flow.source("rows", MemorySource(CHANGES, per_epoch=per_epoch)).key_by("k").table().named("latest")
    return flow, TABLE_VERBS[verb][0](table, **given)


@pytest.mark.parametrize("verb", TABLE_VERBS)
def test_a_key_whose_row_fails_has_none_in_the_table_that_is_made(run: Run, verb: str) -> None:
    def build(per_epoch: int | None) -> Flow:
        flow, made = table_flow(verb, per_epoch)
        made.collect("out")
        if verb != "with_columns":
            made.errors.collect("errors")
        return flow

    names = ("out",) if verb == "with_columns" else ("out", "errors")
    found = everywhere(run, build, names)
    wanted = sorted(TABLE_VERBS[verb][1], key=repr)
    assert sorted(found["out"], key=repr) == wanted
    if verb != "with_columns":
        assert [json.loads(row["row"]) for row in found["errors"]] == [CHANGES[2], CHANGES[3], CHANGES[7]]
    # The content does not tell how the input was cut.
    for per_epoch in (2, 3, None):
        assert sorted(run(build(per_epoch))["out"].to_pylist(), key=repr) == wanted


@pytest.mark.parametrize("verb", TABLE_VERBS)
def test_on_a_table_skip_drops_and_fail_stops(run: Run, verb: str) -> None:
    flow, made = table_flow(verb, None, on_error="skip")
    made.collect("out")
    assert sorted(run(flow)["out"].to_pylist(), key=repr) == sorted(TABLE_VERBS[verb][1], key=repr)
    flow, made = table_flow(verb, None, on_error="fail")
    made.collect("out")
    with pytest.raises(seep.SeepError, match="use on_error='dead_letter'"):
        run(flow)
    with pytest.raises(Misuse, match="on_error='ignore'"):
        table_flow(verb, None, on_error="ignore")


def test_a_row_that_fails_leaves_and_comes_back() -> None:
    flow, made = table_flow("select", 1)
    made.changes().collect("changes")
    changes = seep.run(flow, on="inline")["changes"].to_pylist()
    assert [(row["k"], row["number"], row["change"]) for row in changes] == [
        ("a", 1, "insert"),
        ("b", 2, "insert"),
        ("a", 1, "delete"),
        ("b", 4, "update"),
        ("c", 5, "insert"),
        ("c", 6, "update"),
    ]


def test_a_version_that_fails_is_one_without_a_row(run: Run) -> None:
    flow = Flow("versions")
    rows = [{"k": "a", "n": "1", "at": 1_000}, {"k": "a", "n": "one", "at": 3_000}, {"k": "a", "n": "3", "at": 5_000}]
    table = flow.source("rows", MemorySource(rows), time=("at", "ms")).key_by("k").table(history="1m")
    met = [{"k": "a", "at": at} for at in (2_000, 4_000, 6_000)]
    stream = flow.source("met", MemorySource(met), time=("at", "ms")).key_by("k")
    narrow = table.select("k", number=NUMBER)
    stream.join_table(narrow, how="left", as_of=True).collect("out")
    assert [row["number"] for row in run(flow)["out"].to_pylist()] == [1, None, 3]


def test_a_filter_keeps_versions(run: Run) -> None:
    flow = Flow("versions")
    rows = [{"k": "a", "n": 1, "at": 1_000}, {"k": "a", "n": 2, "at": 3_000}, {"k": "a", "n": 3, "at": 5_000}]
    table = flow.source("rows", MemorySource(rows), time=("at", "ms")).key_by("k").table(history="1m")
    met = [{"k": "a", "at": at} for at in (2_000, 4_000, 6_000)]
    stream = flow.source("met", MemorySource(met), time=("at", "ms")).key_by("k")
    stream.join_table(table.filter(lambda row: row.n != 2), how="left", as_of=True).collect("out")
    assert [row["n"] for row in run(flow)["out"].to_pylist()] == [1, None, 3]


# --- users' own aggregates ---------------------------------------------------------------------------------------


class Listed(seep.Aggregate):
    """All values as text; raises on a bad one after it has changed its state."""

    def zero(self) -> list[Any]:
        return []

    def add(self, state: list[Any], value: int) -> list[Any]:
        state.append(value)
        if value < 0:
            raise ValueError(f"{value} is bad")
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        return state + other

    def result(self, state: list[Any]) -> str:
        return ",".join(map(str, state))


class Plain(Listed):
    """The same, which cannot be merged."""

    merge = seep.Aggregate.merge


class Summed(seep.BatchAggregate):
    zero: ClassVar[dict[str, int]] = {"sum": 0}

    def add(self, state: Any, groups: Any, values: pa.Array) -> None:
        numbers = values.to_numpy()
        np.add.at(state["sum"], groups, numbers)
        if (numbers == 13).any():
            raise ValueError("unlucky")

    def merge(self, state: Any, groups: Any, other: Any) -> None:
        np.add.at(state["sum"], groups, other["sum"])

    def result(self, state: Any) -> int:
        return state["sum"]


VALUES = [
    {"k": "a", "v": 1, "at": 1_000},
    {"k": "a", "v": -1, "at": 2_000},
    {"k": "b", "v": 2, "at": 2_500},
    {"k": "a", "v": 13, "at": 3_000},
    {"k": "b", "v": 3, "at": 4_000},
    {"k": "c", "v": -5, "at": 4_000},
    {"k": "a", "v": 4, "at": 5_000},
    {"k": "a", "v": None, "at": 6_000},
    {"k": "b", "v": 13, "at": 6_500},
    {"k": "a", "v": 6, "at": 7_000},
]
BAD = [VALUES[1], VALUES[3], VALUES[5], VALUES[8]]
GOOD = [row for row in VALUES if row not in BAD]
BOTH = {"listed": Listed("v"), "summed": Summed("v"), "rows": count()}
OWN_VERBS: dict[str, Callable[..., Any]] = {
    "aggregate": lambda stream, **given: stream.aggregate(**BOTH, **given),
    "at the end": lambda stream, **given: stream.aggregate(emit="close", **BOTH, **given),
    "tumbling": lambda stream, **given: stream.window(tumbling("5s"), **BOTH, **given),
    "tumbling update": lambda stream, **given: stream.window(tumbling("5s"), emit="update", **BOTH, **given),
    "sliding": lambda stream, **given: stream.window(sliding("4s", every="2s"), **BOTH, **given),
    "sliding update": lambda stream, **given: stream.window(sliding("4s", every="2s"), emit="update", **BOTH, **given),
    "copying": lambda stream, **given: stream.window(
        sliding("4s", every="2s"), listed=Plain("v"), summed=Summed("v"), rows=count(), **given
    ),
    "session": lambda stream, **given: stream.window(session("1500ms"), **BOTH, **given),
    "session update": lambda stream, **given: stream.window(session("1500ms"), emit="update", **BOTH, **given),
    "count": lambda stream, **given: stream.window(count_window(2), **BOTH, **given),
    "count sliding": lambda stream, **given: stream.window(count_window(3, every=1), **BOTH, **given),
}


def own_flow(verb: str, rows: Rows, per_epoch: int | None, **given: Any) -> Flow:
    flow = Flow("own")
    schema = pa.schema({"k": pa.string(), "v": pa.int64(), "at": pa.int64()})
    source = MemorySource(pa.Table.from_pylist(rows, schema=schema), per_epoch=per_epoch)
    made = OWN_VERBS[verb](flow.source("rows", source, time=("at", "ms"), lateness="10s").key_by("k"), **given)
    made.named("it").collect("out")
    made.errors.collect("errors")
    return flow


@pytest.mark.parametrize("verb", OWN_VERBS)
def test_a_row_that_an_aggregate_of_ones_own_fails_on_counts_nowhere(run: Run, verb: str) -> None:
    wanted = sorted(map(repr, run(own_flow(verb, GOOD, None))["out"].to_pylist()))
    found = everywhere(run, lambda per_epoch: own_flow(verb, VALUES, per_epoch), ("out", "errors"))
    assert sorted(map(repr, found["out"])) == wanted
    assert [json.loads(row["row"]) for row in found["errors"]] == BAD
    assert {row["operator"] for row in found["errors"]} == {"it"}
    assert "Listed('v') fails: ValueError: -1 is bad" in found["errors"][0]["error"] or verb == "copying"
    for per_epoch in (3, None):
        again = run(own_flow(verb, VALUES, per_epoch))
        assert sorted(map(repr, again["out"].to_pylist())) == wanted
        assert sorted(map(repr, letters(again["errors"]))) == sorted(map(repr, BAD))


@pytest.mark.parametrize("verb", OWN_VERBS)
def test_of_ones_own_aggregates_skip_drops_and_fail_stops(run: Run, verb: str) -> None:
    wanted = sorted(map(repr, run(own_flow(verb, GOOD, None))["out"].to_pylist()))
    found = run(own_flow(verb, VALUES, None, on_error="skip"))
    assert sorted(map(repr, found["out"].to_pylist())) == wanted
    assert found["errors"].num_rows == 0
    with pytest.raises(seep.SeepError, match=r"it: .* fails: ValueError: .*; fix it or use on_error='dead_letter'"):
        run(own_flow(verb, VALUES, None, on_error="fail"))


def test_of_a_tables_rows_too(run: Run) -> None:
    rows = [
        {"id": 1, "g": "x", "v": 1},
        {"id": 2, "g": "x", "v": -2},
        {"id": 3, "g": "x", "v": 3},
        {"id": 4, "g": "y", "v": -4},
        {"id": 2, "g": "x", "v": 2},
        {"id": 1, "g": "y", "v": 1},
        {"id": 3, "g": "x", "v": -3},
    ]

    def build(per_epoch: int | None) -> Flow:
        flow = Flow("own")
        table = flow.source("rows", MemorySource(rows, per_epoch=per_epoch)).key_by("id").table()
        made = table.key_by("g").aggregate(listed=Listed("v"), rows=count()).named("it")
        made.collect("out")
        made.errors.collect("errors")
        return flow

    wanted = [{"g": "x", "listed": "2", "rows": 1}, {"g": "y", "listed": "1", "rows": 1}]
    found = everywhere(run, build, ("out", "errors"))
    assert sorted(found["out"], key=repr) == wanted
    # Each once, however often its group changes afterwards.
    assert [json.loads(row["row"])["v"] for row in found["errors"]] == [-2, -4, -3]
    for per_epoch in (2, None):
        assert sorted(run(build(per_epoch))["out"].to_pylist(), key=repr) == wanted


def test_what_merge_and_result_raise_stops_the_flow_naming_the_aggregate(run: Run) -> None:
    class Never(Listed):
        def result(self, state: list[Any]) -> str:
            raise ZeroDivisionError("no rows")

    flow = Flow("own")
    flow.source("rows", MemorySource(GOOD)).key_by("k").aggregate(it=Never("v")).collect("out")
    with pytest.raises(seep.SeepError, match=r"Never\('v'\) fails: ZeroDivisionError: no rows; fix it"):
        run(flow)


# --- the best rows of a Table ------------------------------------------------------------------------------------

SOLD = [
    {"item": 1, "region": "north", "sold": 5},
    {"item": 2, "region": "north", "sold": 7},
    {"item": 3, "region": "north", "sold": 6},
    {"item": 4, "region": "south", "sold": 1},
    {"item": 2, "region": "north", "sold": 1},  # falls behind: the next best takes its place
    {"item": 3, "region": "south", "sold": 6},  # goes elsewhere
    {"item": 1, "region": "north", "sold": 0},  # is gone
    {"item": 4, "region": "south", "sold": 0},
    {"item": 3, "region": "south", "sold": 0},  # and with it the region
]


def sold_flow(per_epoch: int | None, rows: Rows = SOLD, **given: Any) -> Flow:
    flow = Flow("best")
    items = flow.source("items", MemorySource(rows, per_epoch=per_epoch)).key_by("item")
    best = items.table(deleted=pl.col("sold") == 0).key_by("region").top(2, by="sold", **given).named("best")
    best.collect("out")
    best.changes().collect("changes")
    return flow


def test_the_best_rows_of_a_table_follow_its_changes(run: Run) -> None:
    found = everywhere(run, sold_flow, ("out", "changes"))
    assert found["out"] == [{"item": 2, "region": "north", "sold": 1, "rank": 1}]
    told = [(row["region"], row["rank"], row["item"], row["sold"], row["change"]) for row in found["changes"]]
    assert told == [
        ("north", 1, 1, 5, "insert"),
        ("north", 1, 2, 7, "update"),
        ("north", 2, 1, 5, "insert"),
        ("north", 2, 3, 6, "update"),
        ("south", 1, 4, 1, "insert"),
        ("north", 1, 3, 6, "update"),
        ("north", 2, 1, 5, "update"),
        ("south", 1, 3, 6, "update"),
        ("south", 2, 4, 1, "insert"),
        ("north", 1, 1, 5, "update"),
        ("north", 2, 2, 1, "update"),
        ("north", 1, 2, 1, "update"),
        ("north", 2, 2, 1, "delete"),
        ("south", 2, 4, 1, "delete"),
        ("south", 1, 3, 6, "delete"),
    ]


def test_the_best_rows_of_a_window_that_is_updated(run: Run) -> None:
    flow = Flow("best")
    rows = [{"store": s, "item": i, "n": n, "at": at} for at, (s, i, n) in enumerate([(1, 1, 2), (1, 2, 3), (1, 1, 2)])]
    windows = flow.source("sales", MemorySource(rows, per_epoch=1), time=("at", "s")).key_by("store", "item")
    best = windows.window(tumbling("1m"), emit="update", sold=total("n")).key_by("store").top(1, by="sold")
    best.select("store", "rank", "item", "sold").collect("out")
    assert run(flow)["out"].to_pylist() == [{"store": 1, "rank": 1, "item": 1, "sold": 4}]


def test_a_list_of_the_best_rows_of_a_table(run: Run) -> None:
    flow = Flow("best")
    items = flow.source("items", MemorySource(SOLD, per_epoch=1)).key_by("item").table(deleted=pl.col("sold") == 0)
    items.key_by("region").aggregate(best=top(1, by="sold")).collect("out")
    (row,) = run(flow)["out"].to_pylist()
    assert [one["item"] for one in row["best"]] == [2]


def test_what_cannot_be_ranked_is_refused() -> None:
    flow = Flow("best")
    items = flow.source("items", MemorySource(SOLD)).key_by("item").table()
    with pytest.raises(Misuse, match="unknown column 'price'"):
        items.key_by("region").top(2, by="price")
    table = flow.source("more", MemorySource([{"item": 1, "rank": 2}])).key_by("item").table()
    with pytest.raises(Misuse, match="'rank', which top needs itself"):
        table.key_by().top(2, by="item")
    with pytest.raises(Misuse, match=r"has aggregate\(..\) and top\(..\) only; for dedupe"):
        table.key_by().dedupe("item")


# --- through kills -----------------------------------------------------------------------------------------------


def test_neither_kills_nor_scaling_show() -> None:
    flow = Flow("killed")
    rows = flow.source("rows", MemorySource([{"id": 1, "g": "x", "n": "1", "v": 1}]))
    numbers = rows.key_by("id").table().named("latest").select("id", "g", number=NUMBER).named("numbers")
    numbers.key_by("g").top(2, by="number").named("best").collect("ranked")
    rows.key_by("g").aggregate(listed=Listed("v"), rows=count()).named("own").collect("listed")
    driver = Driver(flow, seed=11)
    for epoch in range(12):
        fed = [
            {"id": i % 5, "g": "xyz"[i % 3], "n": "-" if i % 4 == 0 else str(i), "v": -i if i % 7 == 0 else i}
            for i in range(epoch * 6, epoch * 6 + 6)
        ]
        driver.feed("rows", fed)
        if epoch in (2, 5, 8):
            driver.checkpoint()
        if epoch in (3, 6):
            driver.scale("best", 2 if epoch == 3 else 1)
            driver.scale("own", 2 if epoch == 3 else 1)
        if epoch in (4, 7, 9):
            driver.kill("best", 0)
            driver.kill("own", 0)
            driver.kill("numbers", 0)
    driver.close()
    driver.assert_exactly_once()
    refused = [json.loads(letter["row"])["v"] for letter in driver.errors("own")]
    assert sorted(refused) == sorted(-i for i in range(1, 72) if i % 7 == 0)
    assert {letter["operator"] for letter in driver.errors("numbers")} == {"numbers"}
    latest = {i % 5: i for i in range(72)}
    assert {row["number"] for row in driver.output("ranked")} <= {i for i in latest.values() if i % 4}
