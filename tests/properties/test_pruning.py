"""Columns that nobody reads stay behind before joins, and windows behind joins are folded early: neither shows, however
the flow is partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from seep import Flow, MemorySource, count, last, maximum, total, tumbling
from seep.errors import Misuse
from seep.flow import compile as compiling
from seep.flow.combining import Sending
from seep.flow.compile import compile_flow
from seep.flow.stream import Stream
from seep.model.schema import TIMESTAMP
from seep.testing import Driver

SECOND = 1_000_000
SALES = pa.schema(
    {
        "shop": pa.string(),
        "item": pa.string(),
        "n": pa.int64(),
        "ratio": pa.float64(),
        "note": pa.string(),
        "at": TIMESTAMP,
    }
)
SHOPS = pa.schema({"shop": pa.string(), "town": pa.string(), "note": pa.string(), "n": pa.int64(), "at": TIMESTAMP})

shops = st.sampled_from(["a", "b", "c", "a longer name", None])
sales = st.lists(
    st.fixed_dictionaries(
        {
            "shop": shops,
            "item": st.sampled_from(["tea", "milk", None]),
            "n": st.sampled_from([None, 0, 1, -5, 2**62]),
            "ratio": st.sampled_from([None, 0.1, 1e16, -0.0]),
            "note": st.sampled_from(["", "never read"]),
            "at": st.integers(0, 30).map(lambda second: second * SECOND),
        }
    ),
    max_size=25,
)
places = st.lists(
    st.fixed_dictionaries(
        {
            "shop": shops,
            "town": st.sampled_from(["Ulm", "Bonn", None]),
            "note": st.just("nor this"),
            "n": st.integers(0, 3),
            "at": st.integers(0, 30).map(lambda second: second * SECOND),
        }
    ),
    max_size=8,
)

Made = Callable[[Stream, Stream], Any]
SHAPES: dict[str, Made] = {
    "joined, windowed": lambda one, other: (
        one.key_by("shop")
        .join(other.key_by("shop"), within="4s", how="full")
        .named("join")
        .scale(start=2)
        .key_by("item")
        .window(tumbling("10s"), n=count(), most=maximum("n_right"))
        .named("window")
    ),
    "joined, narrowed": lambda one, other: (
        one.key_by("shop")
        .join(other.key_by("shop"), within=("-3s", "5s"), how="left")
        .named("join")
        .scale(start=3)
        .with_columns(sum=pl.col("n") % 100 + pl.col("n_right"))
        .select("sum", "town", when="at_right")
    ),
    "joined in windows": lambda one, other: (
        one.key_by("shop")
        .join(other.key_by("shop"), window=tumbling("8s"), how="right")
        .named("join")
        .filter(pl.col("n_right") > 0)
        .key_by("shop")
        .aggregate(town=last("town"), n=total("n", wide=True))
        .named("fold")
        .scale(start=2)
    ),
    "joined twice": lambda one, other: (
        one.key_by("shop")
        .join(other.key_by("shop"), within="5s")
        .named("first")
        .join(one.key_by("shop").rename(label="note"), within="2s", suffix="_too")
        .named("second")
        .scale(start=2)
        .key_by("town")
        .window(tumbling("10s"), n=count("label"), notes=count("note_right"))
        .named("window")
    ),
    "looked up": lambda one, other: (
        one.key_by("shop")
        .join_table(other.key_by("shop").table().named("places"), how="left")
        .named("join")
        .scale(start=2)
        .key_by("town")
        .window(tumbling("10s"), sold=count(), most=maximum("n_right"))
        .named("window")
    ),
    "looked up, narrowed": lambda one, other: (
        one.key_by("shop")
        .join_table(other.key_by("shop").table().named("places"), how="left")
        .named("join")
        .select("town", "n")
    ),
    "looked up and split": lambda one, other: (
        one.join_table(other.key_by("shop").broadcast(), how="left")
        .named("join")
        .scale(start=2)
        .split(ulm=pl.col("town") == "Ulm")
        .rest.shuffle()
        .drop("ratio", "item", "note")
    ),
    "as of": lambda one, other: (
        one.key_by("shop")
        .join_table(other.key_by("shop").table(history="10s").named("places"), how="left", as_of=True)
        .named("join")
        .key_by("town")
        .window(tumbling("10s"), n=count(), most=maximum("n_right"))
        .named("window")
    ),
}


@contextmanager
def as_declared() -> Iterator[None]:
    """Every column travels, no row is folded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "sending", lambda vertex, chains, used: Sending(vertex.make))
        patch.setattr(compiling, "prune", lambda inputs, ways, plans: {})
        yield


def flow_of(shape: str, left: list[Any], right: list[Any]) -> Flow:
    flow = Flow("pruned")
    tables = [pa.Table.from_pylist(rows, schema) for rows, schema in ((left, SALES), (right, SHOPS))]
    streams = [
        flow.source(name, MemorySource(table, per_epoch=4), time="at", lateness="6s")
        for name, table in zip(("sales", "shops"), tables, strict=True)
    ]
    SHAPES[shape](*streams).collect("out")
    return flow


def left_out(flow: Flow, node: str) -> set[str]:
    return set(compile_flow(flow).nodes[node].make.unread)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15)
@given(left=sales, right=places)
def test_pruning_does_not_show(shape: str, left: list[Any], right: list[Any]) -> None:
    with as_declared():
        want = seep.run(flow_of(shape, left, right))["out"]
    found = seep.run(flow_of(shape, left, right))["out"]
    assert found.schema == want.schema
    assert repr(found.to_pylist()) == repr(want.to_pylist())


@pytest.mark.parametrize(
    ("shape", "node", "columns"),
    [
        ("joined, windowed", "join", {"n", "ratio", "note", "town"}),
        ("joined, narrowed", "join", {"item", "ratio", "note"}),
        ("joined in windows", "join", {"item", "ratio", "note"}),
        ("joined twice", "first", {"item", "n", "ratio", "note"}),
        ("looked up", "join", {"item", "n", "ratio", "note", "at"}),
        ("looked up and split", "join", {"item", "ratio", "note"}),
        ("as of", "join", {"item", "n", "ratio", "note", "at"}),
    ],
)
def test_what_stays_behind(shape: str, node: str, columns: set[str]) -> None:
    assert left_out(flow_of(shape, [], []), node) == columns
    compile_flow(flow_of(shape, [], [])).nodes[node].make.warm()


@pytest.mark.parametrize("shape", ["joined, windowed", "looked up", "as of"])
def test_windows_behind_joins_are_folded_by_them(shape: str) -> None:
    plan = compile_flow(flow_of(shape, [], [])).nodes["window"].make
    assert plan.combine is not None, plan.reason


def test_rows_that_are_shown_as_they_came_travel_whole() -> None:
    flow = Flow("whole")
    tables = [pa.Table.from_pylist([], schema) for schema in (SALES, SHOPS)]
    one, other = (flow.source(name, MemorySource(t), time="at") for name, t in zip(("l", "r"), tables, strict=True))
    joined = one.key_by("shop").join(other.key_by("shop"), within="4s").named("join")
    joined.select("item").collect("out")
    assert left_out(flow, "join") == {"n", "ratio", "note", "town"}
    joined.late_left.collect("late")
    assert left_out(flow, "join") == {"note", "town", "n"}
    # What an expression may refuse becomes a dead letter, and so does what a function refuses.
    joined.select(pl.col("town").str.to_integer()).collect("numbers")
    assert left_out(flow, "join") == set()


def test_a_time_that_may_be_missing_keeps_its_row_whole() -> None:
    flow = Flow("unchecked")
    tables = [pa.Table.from_pylist([], schema) for schema in (SALES, SHOPS)]
    one, other = (flow.source(name, MemorySource(t), time="at") for name, t in zip(("l", "r"), tables, strict=True))
    changed = one.map(lambda row: row.as_dict(), schema=SALES)
    changed.key_by("shop").join(other.key_by("shop"), within="4s").named("join").select("item").collect("out")
    assert left_out(flow, "join") == {"note", "town", "n"}


def test_where_only_dead_letters_are_taken_the_steps_still_run() -> None:
    flow = Flow("letters")
    rows = pa.Table.from_pylist([dict.fromkeys(SALES.names) | {"shop": "a", "n": 1, "at": 0}], SALES)
    source = flow.source("sales", MemorySource(rows), time="at")
    looked = source.key_by("shop").join_table(source.key_by("shop").table().named("places")).named("join")
    looked.select("n", "item").filter(pl.col("n") > 0).errors.collect("filtered")
    looked.rename(m="n").errors.collect("renamed")
    result = seep.run(flow)
    assert [result[name].num_rows for name in ("filtered", "renamed")] == [0, 0]


def test_kills_and_splits_of_a_pruned_join() -> None:
    """(A Driver takes late rows, so what has some gets whole rows there.)"""
    flow = flow_of("looked up, narrowed", [], [])
    driver = Driver(flow, seed=6)
    assert "note" in driver._graph.nodes["join"].make.unread
    for epoch in range(6):
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch)
        driver.feed("shops", [{"shop": f"s{epoch}", "town": "Ulm", "note": "x", "n": epoch, "at": at}])
        rows = [dict.fromkeys(SALES.names) | {"shop": f"s{i % 5}", "n": i, "at": at} for i in range(8)]
        driver.feed("sales", rows)
        if epoch == 1:
            driver.checkpoint()
            driver.scale("join", 3)
        if epoch == 3:
            driver.kill("join", 1)
        if epoch == 4:
            driver.scale("join", 1)
    driver.close()
    found = driver.output("out")
    assert (len(found), sum(row["town"] == "Ulm" for row in found)) == (48, 35)
    driver.assert_exactly_once()


def test_a_state_without_a_column_that_is_read_now_is_refused() -> None:
    """A savepoint of a flow that read less."""
    narrow = compile_flow(flow_of("looked up", [], [])).nodes["join"].make()
    with as_declared():
        whole = compile_flow(flow_of("looked up", [], [])).nodes["join"].make()
    with pytest.raises(Misuse, match="was saved without the column 'note', which nobody read then"):
        whole.load(narrow.snapshot(True))
    narrow.load(whole.snapshot(True))
