"""`seep.testing.Driver`: a crash is a step like a row, and no order of steps shows in the output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seep
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
SALE = {"store": str, "amount": int, "at": datetime}


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def sale(store: str, amount: int, seconds: int = 0) -> dict[str, Any]:
    return {"store": store, "amount": amount, "at": at(seconds)}


class Visits(seep.Operator):
    """Uses everything: every kind of state, both kinds of timers, ticks, on_epoch, the seeded random."""

    count = seep.CounterState()
    recent = seep.ListState(int, ttl="1h")
    best = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        if row.amount < 0:
            raise ValueError("negative")
        self.count.add(1)
        self.recent.append(row.amount)
        self.best.value = max(self.best.value, row.amount)
        ctx.set_timer(ctx.now + timedelta(minutes=5), event_time=False)
        ctx.emit({"store": ctx.key, "what": "row", "number": self.count.value})

    def on_timer(self, at: datetime, ctx: Any) -> None:
        ctx.emit({"store": ctx.key, "what": "timer", "number": sum(self.recent)})

    def on_tick(self, ctx: Any) -> None:
        ctx.emit({"store": ctx.key, "what": "tick", "number": self.best.value})

    def on_epoch(self, epoch: int, ctx: Any) -> None:
        ctx.emit({"store": ctx.key, "what": "epoch", "number": ctx.random.randrange(1_000_000)})


def sales_flow() -> seep.Flow:
    flow = seep.Flow("sales", checkpoint="200ms")
    sales = flow.source("sales", seep.MemorySource([sale("x", 1)]), time="at", lateness="10s")
    good = sales.filter(pl.col("amount") != 0).named("inside")
    minute = good.key_by("store").window(seep.tumbling("1m"), revenue=seep.total("amount")).named("minute")
    minute.collect("minutes")
    good.key_by("store").aggregate(n=seep.count()).named("count").collect("counts")
    out = {"store": str, "what": str, "number": int}
    good.key_by("store").apply(Visits, out=out, every="1m").named("visits").collect("seen")
    return flow


def test_feed_advance_and_close() -> None:
    driver = Driver(sales_flow())
    driver.feed("sales", [sale("a", 5, 0), sale("b", 7, 1), sale("a", 2, 30)])
    assert sorted((r["store"], r["n"]) for r in driver.output("counts")) == [("a", 2), ("b", 1)]
    assert driver.output("minutes") == []
    driver.feed("sales", [sale("a", 1, 75)])
    assert sorted((r["store"], r["revenue"]) for r in driver.output("minutes")) == [("a", 7), ("b", 7)]
    driver.close()
    assert sorted((r["store"], r["revenue"]) for r in driver.output("minutes")) == [("a", 1), ("a", 7), ("b", 7)]
    driver.assert_exactly_once()


def test_late_rows_and_dead_letters() -> None:
    driver = Driver(sales_flow())
    driver.feed("sales", [sale("a", 1, 200)])
    driver.feed("sales", [sale("a", 4, 20), sale("a", -3, 200)])
    assert [row["amount"] for row in driver.late("minute")] == [4]
    letters = driver.errors("visits")
    assert [(letter["operator"], letter["error"]) for letter in letters] == [("visits", "ValueError: negative")]
    driver.kill("minute", 0)
    driver.kill("visits", 0)
    assert [row["amount"] for row in driver.late("minute")] == [4]
    assert driver.errors("visits") == letters
    driver.assert_exactly_once()


def test_timers_and_ticks_fire_once_across_kills() -> None:
    driver = Driver(sales_flow())
    driver.feed("sales", [sale("a", 5), sale("b", 6)])
    driver.checkpoint()
    driver.kill("visits", 0)
    driver.scale("visits", 3)
    driver.kill("visits", 1)
    driver.advance("3m")
    driver.kill("visits", 2)
    driver.advance("3m")
    driver.scale("visits", 1)
    driver.kill("sales", 0)
    driver.advance(epochs=2)
    seen = driver.output("seen")
    assert sorted((r["store"], r["number"]) for r in seen if r["what"] == "timer") == [("a", 5), ("b", 6)]
    # One tick for each epoch in which a new minute has begun: two of them.
    assert sorted((r["store"], r["number"]) for r in seen if r["what"] == "tick") == [
        ("a", 5),
        ("a", 5),
        ("b", 6),
        ("b", 6),
    ]
    driver.assert_exactly_once()


def test_what_does_not_exist_is_refused() -> None:
    driver = Driver(sales_flow())
    with pytest.raises(seep.Misuse, match="no source 'nobody'"):
        driver.feed("nobody", [])
    with pytest.raises(seep.Misuse, match="no operator 'nobody'"):
        driver.kill("nobody", 0)
    with pytest.raises(seep.Misuse, match="there is no count/1"):
        driver.kill("count", 1)
    with pytest.raises(seep.Misuse, match="no sink 'count'"):
        driver.output("count")
    with pytest.raises(seep.Misuse, match="count has no late rows"):
        driver.late("count")
    driver.close()
    with pytest.raises(seep.Misuse, match="'sales' is closed"):
        driver.feed("sales", [sale("a", 1)])


def test_a_table_is_fed_as_rows_are() -> None:
    driver = Driver(sales_flow())
    rows = pa.Table.from_pylist([sale("a", 2), sale("b", 3)])
    for table in (rows, pa.concat_tables([rows, rows]), rows.to_batches()[0], rows.slice(0, 0)):
        driver.feed("sales", table)
    assert [row["n"] for row in driver.output("counts")] == [4, 4]
    driver.assert_exactly_once()


def test_a_nan_is_no_difference() -> None:
    flow = seep.Flow("nan")
    flow.source("in", seep.MemorySource([{"x": 1.0}])).collect("out")
    driver = Driver(flow)
    driver.feed("in", [{"x": float("nan")}])
    driver.assert_exactly_once()


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda driver: driver.scale("sales", 2), "sales is fed by hand"),
        (lambda driver: driver.scale("count", 99), "count may have 1 to 16 partitions, not 99"),
        (lambda driver: driver.scale("count", 0), "count may have 1 to 16 partitions, not 0"),
        (lambda driver: driver.scale("count", 2.5), "count=2.5; give a whole number"),
        (lambda driver: driver.kill("nobody", 0), "no operator 'nobody'; there are: [^0-9]*$"),  # no sinks of our own
        (lambda driver: driver.kill("inside", 0), "inside runs inside the operator before it; kill that one"),
        (lambda driver: driver.kill("count", "0"), "index='0'; give a whole number"),
        (lambda driver: driver.feed("sales", sale("a", 1)), "give a list of rows"),
        (lambda driver: driver.feed("sales", "a"), "give a list of rows"),
        (lambda driver: driver.feed("sales", None), "feed.'sales', None.: give a list of rows"),
        (lambda driver: driver.feed("sales", pa.table({"store": ["a"]})), "does not fit: .*; give it store .string., "),
        (lambda driver: driver.advance("-5s"), "time does not go back"),
        (
            lambda driver: (driver.close(), driver.advance(epochs=1)),
            "the flow is closed: no epoch comes after its last",
        ),
        (lambda driver: (driver.close(), driver.kill("count", 0), driver.advance("1s")), "the flow is closed"),
    ],
)
def test_steps_that_cannot_be(step: Any, says: str) -> None:
    with pytest.raises(seep.Misuse, match=says):
        step(Driver(sales_flow()))


def test_a_source_that_starts_as_several() -> None:
    flow = seep.Flow("several")
    rows = flow.source("rows", seep.MemorySource([{"a": 1}])).scale(start=2)
    rows.key_by("a").aggregate(n=seep.count()).named("count").collect("counts")
    driver = Driver(flow)
    driver.feed("rows", [{"a": 1}])
    driver.kill("rows", 1)
    driver.feed("rows", [{"a": 1}])
    assert driver.output("counts") == [{"a": 1, "n": 2}]
    driver.assert_exactly_once()


def test_a_difference_is_found() -> None:
    """An operator with a memory of its own that no checkpoint holds: the assertion must see it."""

    class Forgetful(seep.Operator):
        calls = 0

        def on_row(self, row: Any, ctx: Any) -> None:
            self.calls += 1
            ctx.emit({"n": self.calls})

    flow = seep.Flow("forgetful", checkpoint="200ms")
    rows = flow.source("rows", seep.MemorySource([{"k": 1}]))
    rows.key_by("k").apply(Forgetful, out={"n": int}).named("forget").collect("out")
    driver = Driver(flow)
    for _ in range(3):
        driver.feed("rows", [{"k": 1}])
        driver.checkpoint()
    driver.kill("forget", 0)
    driver.feed("rows", [{"k": 1}])
    with pytest.raises(AssertionError, match="with faults"):
        driver.assert_exactly_once()


STEPS = st.one_of(
    st.tuples(
        st.just("feed"),
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-1, 9), st.integers(0, 300)), max_size=6),
    ),
    st.tuples(st.just("kill"), st.sampled_from(["sales", "minute", "count", "visits", "seen"]), st.integers(0, 2)),
    st.tuples(st.just("scale"), st.sampled_from(["minute", "count", "visits"]), st.integers(1, 3)),
    st.tuples(st.just("advance"), st.sampled_from(["1s", "1m", "6m"])),
    st.tuples(st.just("checkpoint")),
)


@pytest.mark.timeout(300)
@given(steps=st.lists(STEPS, min_size=3, max_size=9), seed=st.integers(0, 1000))
def test_any_order_of_steps_is_exactly_once(steps: list[Any], seed: int) -> None:
    driver = Driver(sales_flow(), seed=seed)
    sizes = {"minute": 1, "count": 1, "visits": 1}
    totals: dict[str, int] = {}
    for name, *how in steps:
        if name == "feed":
            driver.feed("sales", [sale(*row) for row in how[0]])
            for store, amount, _ in how[0]:
                if amount:
                    totals[store] = totals.get(store, 0) + 1
        elif name == "kill":
            driver.kill(how[0], how[1] % sizes.get(how[0], 1))
        elif name == "scale":
            sizes[how[0]] = how[1]
            driver.scale(*how)
        else:
            getattr(driver, name)(*how)
    driver.close()
    assert {row["store"]: row["n"] for row in driver.output("counts")} == totals
    driver.assert_exactly_once()


def test_windows_behind_two_choices_can_be_driven() -> None:
    flow = seep.Flow("halves")
    sales = flow.source("sales", seep.MemorySource([], schema=SALE), time="at")
    halves = sales.key_by("store").two_choices().window(seep.tumbling("10s"), sold=seep.count()).named("tens")
    halves.collect("sold")
    driver = Driver(flow)
    driver.feed("sales", [{"store": "north", "amount": 1, "at": at(second)} for second in (1, 2, 11)])
    driver.close()
    assert [row["sold"] for row in driver.output("sold")] == [2, 1]
    driver.assert_exactly_once()
