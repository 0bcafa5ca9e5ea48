"""What a join of two streams means, from the flow a user writes to the rows that come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import seep
from operators.join import IntervalJoin
from operators.joining import JoinInput
from operators.kernels import joins as kernel
from seep.errors import Misuse
from seep.flow.check import check
from seep.flow.compile import compile_flow
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.model.keyspace import buckets_of
from seep.model.schema import TIMESTAMP
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS = pa.schema({"user": pa.string(), "at": TIMESTAMP, "item": pa.string()})
CLICKS = pa.schema({"visitor": pa.string(), "at": TIMESTAMP, "page": pa.int64()})


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def seconds(time: datetime | None) -> float | None:
    return None if time is None else (time - START).total_seconds()


def orders(*rows: tuple[str | None, float | None, str]) -> list[dict[str, Any]]:
    return [{"user": u, "at": None if t is None else at(t), "item": i} for u, t, i in rows]


def clicks(*rows: tuple[str | None, float | None, int]) -> list[dict[str, Any]]:
    return [{"visitor": u, "at": None if t is None else at(t), "page": p} for u, t, p in rows]


def streams(
    left: list[dict[str, Any]], right: list[dict[str, Any]], per_epoch: int | None = None
) -> tuple[seep.Flow, seep.Stream, seep.Stream]:
    flow = seep.Flow("test")
    one = flow.source("orders", seep.MemorySource(pa.Table.from_pylist(left, ORDERS), per_epoch), time="at")
    other = flow.source("clicks", seep.MemorySource(pa.Table.from_pylist(right, CLICKS), per_epoch), time="at")
    return flow, one.key_by("user"), other.key_by("visitor")


def time_of(row: dict[str, Any]) -> Any:
    return row["at"]


def pairs(table: pa.Table) -> list[tuple[str | None, int | None]]:
    return sorted(((r["item"], r["page"]) for r in table.to_pylist()), key=repr)


LEFT = orders(("ann", 10, "tea"), ("ann", 50, "cup"), ("bob", 10, "pot"), (None, 10, "jar"))
RIGHT = clicks(("ann", 5, 1), ("ann", 15, 2), ("ann", 16, 3), ("eve", 10, 4), (None, 10, 5))


def joined(how: str = "inner", per_epoch: int | None = None, **near: Any) -> list[tuple[str | None, int | None]]:
    flow, one, other = streams(LEFT, RIGHT, per_epoch)
    one.join(other, how=how, **near).named("join").collect("out")
    return pairs(seep.run(flow, on="inline")["out"])


INNER: list[tuple[str | None, int | None]] = [("tea", 1), ("tea", 2)]
LEFT_ALONE: list[tuple[str | None, int | None]] = [("cup", None), ("pot", None), ("jar", None)]
RIGHT_ALONE: list[tuple[str | None, int | None]] = [(None, 3), (None, 4), (None, 5)]
WANTED = {
    "inner": INNER,
    "left": INNER + LEFT_ALONE,
    "right": INNER + RIGHT_ALONE,
    "full": INNER + LEFT_ALONE + RIGHT_ALONE,
}


@pytest.mark.parametrize("how", WANTED)
def test_within_reaches_both_ways_and_includes_its_bounds(how: str) -> None:
    assert joined(how, within="5s") == sorted(WANTED[how], key=repr)


def test_a_range_is_of_right_minus_left() -> None:
    assert joined(within=("0s", "6s")) == [("tea", 2), ("tea", 3)]
    assert joined(within=("-5s", "-5s")) == [("tea", 1)]
    assert joined(within=(timedelta(seconds=-44), timedelta(seconds=-35))) == [("cup", 2)]


def test_windows_are_aligned_and_half_open() -> None:
    assert joined(window=seep.tumbling("10s")) == [("tea", 2), ("tea", 3)]
    assert joined(window=seep.tumbling("10s", offset="5s")) == [("tea", 1)]
    assert joined("full", window=seep.tumbling("1m")) == sorted(
        [(item, page) for item in ("tea", "cup") for page in (1, 2, 3)]
        + [("pot", None), ("jar", None), (None, 4), (None, 5)],
        key=repr,
    )


def test_columns_are_the_left_keys_then_left_then_right_with_a_suffix() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    both = one.join(other, "5s", "full")
    assert both.schema.names == ["user", "at", "item", "at_right", "page"]
    assert both.keys == ("user",)
    assert one.join(other, within="5s", suffix="_of_click").schema.names[3] == "at_of_click"
    turned = one.select("item", "at", "user").join(other, within="5s")
    assert turned.schema.names == ["user", "item", "at", "at_right", "page"]
    both.collect("out")
    found = {r["page"]: r for r in seep.run(flow, on="inline")["out"].to_pylist()}
    assert found[4] == {"user": "eve", "at": None, "item": None, "at_right": at(10), "page": 4}


def test_the_time_is_the_later_of_both_and_the_key_stays() -> None:
    """A window behind the join sees each row at its time; no unmatched row is late there, however long it waited."""
    left = orders(("ann", 10, "tea"), ("bob", 11, "pot"), ("ann", 50, "cup"), ("eve", 90, "jar"), ("eve", 99, "end"))
    right = clicks(("ann", 5, 1), ("ann", 15, 2), ("eve", 16, 3), ("ann", 70, 4), ("bob", 99, 5))
    flow, one, other = streams(left, right, per_epoch=1)
    both = one.join(other, within="30s", how="full").named("join")
    counts = both.window(seep.tumbling("1s"), n=seep.count()).named("counts")
    counts.collect("out")
    for name, late in (("late", counts.late), ("left", both.late_left), ("right", both.late_right)):
        late.collect(name)
    result = seep.run(flow, on="inline")
    assert [result[name].num_rows for name in ("late", "left", "right")] == [0, 0, 0]
    found = sorted((r["user"], seconds(r["window_start"]), r["n"]) for r in result["out"].to_pylist())
    matched = [("ann", 10, 1), ("ann", 15, 1), ("ann", 70, 1)]
    alone = [("bob", 11, 1), ("bob", 99, 1), ("eve", 16, 1), ("eve", 90, 1), ("eve", 99, 1)]
    assert found == sorted([*matched, *alone])


def test_time_follows_its_columns_and_is_lost_with_one() -> None:
    _, one, other = streams(LEFT, RIGHT)
    both = one.join(other, within="5s")
    both.rename(clicked="at_right").window(seep.tumbling("1m"), n=seep.count())
    with pytest.raises(Misuse, match="no event time"):
        both.drop("at_right").window(seep.tumbling("1m"), n=seep.count())


def test_three_streams_by_chaining() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    third = flow.source(
        "payments", seep.MemorySource([{"who": "ann", "ms": 1_704_067_218_000, "paid": 7}]), time=("ms", "ms")
    ).key_by("who")
    one.join(other, within="5s").join(third, within="3s").named("all").collect("out")
    rows = seep.run(flow, on="inline")["out"].to_pylist()
    assert [(r["item"], r["page"], r["paid"]) for r in rows] == [("tea", 2, 7)], "15 s is within 3 s of 18 s, 10 s not"


def test_late_rows_go_out_by_side() -> None:
    left = orders(
        ("ann", 10, "a"), ("ann", 40, "b"), ("ann", 20, "late"), ("ann", 39, "late too"), ("ann", 40, "in time")
    )
    right = clicks(("ann", 10, 1), ("ann", 40, 2), ("ann", 39, 3), ("ann", 40, 4), ("ann", 40, 5))
    flow, one, other = streams(left, right, per_epoch=1)
    both = one.join(other, within="0s").named("join")
    both.collect("out")
    both.late_left.collect("left")
    both.late_right.collect("right")
    result = seep.run(flow, on="inline")
    assert result["left"].column("item").to_pylist() == ["late", "late too"]
    assert result["right"].column("page").to_pylist() == [3]
    assert pairs(result["out"]) == sorted([("a", 1), *((i, p) for i in ("b", "in time") for p in (2, 4, 5))])


def test_a_row_without_a_time_is_a_dead_letter() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    broken = one.with_columns(at=pl.when(pl.col("item") == "tea").then(None).otherwise(pl.col("at")))
    assert broken.time is None, "a computed column is another one"
    step = one.map(lambda row: {**row.as_dict(), "at": None if row.item == "tea" else row.at}, schema=ORDERS)
    both = step.key_by("user").join(other, within="5s", how="left").named("join")
    both.collect("out")
    both.errors.collect("errors")
    result = seep.run(flow, on="inline")
    assert pairs(result["out"]) == sorted(LEFT_ALONE, key=repr)
    (letter,) = result["errors"].to_pylist()
    assert json.loads(letter["row"])["item"] == "tea"
    assert (letter["operator"], letter["error"]) == ("join", "no usable time in the left row's 'at'")


def test_a_union_may_be_joined() -> None:
    flow, one, other = streams(LEFT[:2], RIGHT)
    more = flow.source("more", seep.MemorySource(pa.Table.from_pylist(LEFT[2:], ORDERS)), time="at")
    one.union(more).key_by("user").join(other, within="5s", how="left").named("join").collect("out")
    assert pairs(seep.run(flow, on="inline")["out"]) == sorted(WANTED["left"], key=repr)


def test_a_stream_with_itself() -> None:
    flow, one, _ = streams(LEFT, RIGHT)
    one.join(one, within=("1s", "1m")).named("join").collect("out")
    rows = seep.run(flow, on="inline")["out"].to_pylist()
    assert [(r["item"], r["item_right"]) for r in rows] == [("tea", "cup")]


def test_the_watermark_behind_an_outer_join_is_held_back() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    for name, how, near in (
        ("inner", "inner", {"within": "5s"}),
        ("left", "left", {"within": ("-9s", "5s")}),
        ("right", "right", {"within": ("-9s", "5s")}),
        ("full", "full", {"window": seep.tumbling("7s")}),
    ):
        one.join(other, how=how, **near).named(name).collect(f"{name} out")
    edges = {edge.source: edge for edge in compile_flow(flow).edges if edge.target.endswith("out")}
    assert {name: edge.holds_us // 1_000_000 for name, edge in edges.items()} == {
        "inner": 0,
        "left": 5,
        "right": 9,
        "full": 7,
    }
    assert edges["left"].watermark(7_000_000) == 2_000_000
    assert (edges["left"].watermark(FOREVER), edges["left"].watermark(BEGINNING)) == (FOREVER, BEGINNING)


def test_one_group_over_all(run: Callable[..., Any]) -> None:
    flow, one, other = streams(sorted(LEFT, key=time_of), sorted(RIGHT, key=time_of), per_epoch=1)
    one.key_by().join(other.key_by(), within="0s").named("join").collect("out")
    assert pairs(run(flow, reload=True)["out"]) == sorted((i, p) for i in ("tea", "pot", "jar") for p in (4, 5))


@pytest.mark.parametrize("near", [{"within": "7s"}, {"window": seep.tumbling("10s")}])
def test_partitions_and_restarts_do_not_show(run: Callable[..., Any], near: dict[str, Any]) -> None:
    left = orders(*((f"user {i % 7}", i * 1.5, str(i)) for i in range(60)))
    right = clicks(*((f"user {i % 5}", i * 2.0, i) for i in range(45)))
    flow, one, other = streams(left, right, per_epoch=6)
    both = one.join(other, how="full", **near)
    both.collect("out")
    both.window(seep.tumbling("20s"), n=seep.count()).collect("counts")
    wanted = {name: table.to_pylist() for name, table in run(flow).items()}
    assert sum(row["n"] for row in wanted["counts"]) == len(wanted["out"]), "none is late behind the join"
    for how in ({"partitions": 3}, {"partitions": 2, "reload": True}):
        assert {name: table.to_pylist() for name, table in run(flow, **how).items()} == wanted


def test_kills_and_scaling_do_not_show() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    both = one.join(other, within="10s", how="full").named("join")
    both.collect("out")
    both.window(seep.tumbling("30s"), n=seep.count()).named("counts").collect("counted")
    driver = Driver(flow, seed=3)
    for step in range(6):
        driver.feed("orders", orders(*((f"user {i}", 20 * step + i, f"{step}-{i}") for i in range(5))))
        driver.feed("clicks", clicks(*((f"user {i}", 20 * step + 3 * i, 10 * step + i) for i in range(6))))
        if step == 1:
            driver.checkpoint()
            driver.kill("join", 0)
        if step == 2:
            driver.scale("join", 3)
        if step == 4:
            driver.kill("join", 1)
            driver.scale("join", 2)
    driver.feed("orders", orders(("user 1", 0, "late")))
    driver.close()
    driver.assert_exactly_once()
    assert [row["item"] for row in driver.late("join")] == ["late"]
    assert sum(row["n"] for row in driver.output("counted")) == len(driver.output("out")) == 36


def test_state_is_dropped_when_the_watermark_allows_it() -> None:
    head, columns = operator("inner"), []
    for epoch in range(1, 200):
        inputs = [(port, batch(port, epoch)) for port in (0, 1)]
        head.take(Moment(epoch, 0, 10 * (epoch - 1) if epoch > 1 else BEGINNING, 10 * epoch), inputs)
        columns.append(head.content().num_rows)
    assert columns[50] == columns[-1] < 100
    assert head.statistics()["state_bytes"] < 500_000


def test_an_increment_holds_only_what_changed() -> None:
    head = operator("left")
    head.take(Moment(1, 0, BEGINNING, 0), [(0, batch(0, 1))])
    assert head.snapshot(True).tables["left"].num_rows == 10
    head.take(Moment(2, 0, 0, 0), [(0, batch(0, 2).chosen(np.arange(3)))])
    assert head.snapshot(False).tables["left"].num_rows == 3
    assert head.snapshot(False).tables["left"].num_rows == 0
    assert not head.mostly_changed()
    head.take(Moment(3, 0, 0, 0), [(1, batch(1, 1).chosen(np.arange(2)))])
    tables = head.snapshot(False).tables
    assert (tables["left"].num_rows, tables["right"].num_rows) == (2, 2), "two have a partner now"
    head.take(Moment(4, 0, 0, 1000), [])
    deleted = head.snapshot(False).tables["left"].column("__deleted").to_pylist()
    assert deleted == [True] * 13


def operator(how: str) -> IntervalJoin:
    schema = pa.schema({"key": pa.int64(), "at": TIMESTAMP})
    left = JoinInput(schema, ("key",), "at", (("key", "key"), ("at", "at")))
    right = JoinInput(schema, ("key",), "at", (("at", "at_right"),))
    return IntervalJoin(left, right, how, -5, 5)


def batch(port: int, epoch: int) -> ArrowBatch:
    times = pa.array(np.arange(10) + 10 * epoch).view(TIMESTAMP)
    record = pa.record_batch([pa.array(np.arange(10) % 7 if port else np.arange(10)), times], names=["key", "at"])
    return ArrowBatch(record, buckets_of(record, ["key"]))


def refusals() -> dict[str, tuple[Callable[[seep.Stream, seep.Stream], Any], str]]:
    return {
        "no key": (lambda a, b: a.select("item", "at").join(b, within="1s"), "join works by key; call key_by"),
        "no right key": (lambda a, b: a.join(b.select("page", "at"), within="1s"), "join works by key; call key_by"),
        "other types": (lambda a, b: a.join(b.key_by("page"), within="1s"), r"equal types: user \(string\) and page"),
        "other number": (lambda a, b: a.join(b.key_by("visitor", "page"), within="1s"), "pair by position"),
        "no nearness": (lambda a, b: a.join(b), "within='30s', or window="),
        "both": (lambda a, b: a.join(b, within="1s", window=seep.tumbling("1s")), "not both"),
        "bad how": (lambda a, b: a.join(b, within="1s", how="outer"), "how='outer'; choose one of inner, left"),
        "no time": (lambda a, b: a.drop("at").join(b, within="1s"), "no event time"),
        "no right time": (lambda a, b: a.join(b.drop("at"), within="1s"), "no event time"),
        "turned range": (lambda a, b: a.join(b, within=("5s", "1s")), "first bound is later"),
        "negative": (lambda a, b: a.join(b, within="-5s"), "less than zero"),
        "no range": (lambda a, b: a.join(b, within=("1s", "2s", "3s")), "a duration or"),
        "for ever": (lambda a, b: a.join(b, within=timedelta.max), "every row for ever"),
        "no window": (lambda a, b: a.join(b, window="1s"), "is no window"),
        "arrival": (lambda a, b: a.join(b, window=seep.tumbling("1s", by="arrival")), "without by='arrival'"),
        "second collision": (lambda a, b: a.join(b.rename(at_right="page"), within="1s"), "a second 'at_right'"),
        "no suffix": (lambda a, b: a.join(b, within="1s", suffix=""), "a second 'at'; rename it"),
        "a table": (lambda a, b: a.join(b.table(), within="1s"), r"\.changes\(\)"),
        "filled time": (
            lambda a, b: a.key_by("at").join(b.with_columns(t=pl.col("at")).key_by("t"), within="1s", how="left"),
            "the time of one side only",
        ),
        "late of a window": (lambda a, b: a.window(seep.tumbling("1s"), n=seep.count()).late_left, "no 'late_left'"),
        "late of a join": (lambda a, b: a.join(b, within="1s").late, "no 'late' output"),
    }


@pytest.mark.parametrize("case", refusals())
def test_refused_when_the_flow_is_built(case: str) -> None:
    _, one, other = streams(LEFT, RIGHT)
    make, message = refusals()[case]
    with pytest.raises(Misuse, match=message):
        make(one, other)


def test_check_asks_for_a_name() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    one.join(other, within="5s").collect("out")
    assert [str(finding) for finding in check(flow) if "'join-user' has state" in str(finding)]


def test_the_plan_can_be_warmed() -> None:
    flow, one, other = streams(LEFT, RIGHT)
    one.join(other, within="5s", how="full").named("join").collect("out")
    compile_flow(flow).nodes["join"].make.warm()
    loops: list[Any] = [loop for name, loop in vars(kernel).items() if hasattr(loop, "signatures") and name[0] != "_"]
    assert loops
    assert {loop.__name__ for loop in loops if len(loop.signatures) != 1} == set(), "never compiled, or twice"
