"""Timers that set timers: the same ones fire, in the same order, however the input is cut into epochs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from operators.apply import MAX_REPEATS
from seep.errors import Misuse
from seep.testing import Driver

START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Chain(seep.Operator):
    """From the first row of a key: a timer every so many seconds, up to a time or for ever; and one after each row."""

    begun = seep.ValueState(bool, default=False)

    def __init__(self, step: int, until: int | None, after: int) -> None:
        self.step, self.until, self.after = step, until, after

    def on_row(self, row: Any, ctx: Any) -> None:
        if not self.begun.value:
            self.begun.value = True
            ctx.set_timer(row.at + self.step * SECOND)
        ctx.set_timer(row.at + self.after * SECOND + SECOND / 2)

    def on_timer(self, at: datetime, ctx: Any) -> None:
        second = (at - START) / SECOND
        ctx.emit({"key": ctx.key, "at": second})
        if second == int(second) and (self.until is None or second < self.until):
            ctx.set_timer(at + self.step * SECOND)


def flow_of(times: list[tuple[str, int]], per_epoch: int | None, lateness: int, chain: Chain) -> seep.Flow:
    rows = [{"key": key, "at": START + second * SECOND} for key, second in times]
    flow = seep.Flow("timers")
    memory = seep.MemorySource(rows, per_epoch=per_epoch)
    source = flow.source("src", memory, time="at", lateness=timedelta(seconds=lateness))
    source.key_by("key").apply(chain, out={"key": str, "at": float}).named("chain").collect("out")
    return flow


def fired(flow: seep.Flow) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in seep.run(flow, on="inline")["out"].to_pylist():
        found.setdefault(row["key"], []).append(row["at"])
    return found


def wanted(times: list[tuple[str, int]], lateness: int, chain: Chain) -> dict[str, list[float]]:
    """Without epochs: a chain goes on while the rows do, then comes what is set."""
    reached = max(second for _, second in times) - lateness
    found: dict[str, list[float]] = {}
    for key in {key for key, _ in times}:
        seconds = [second for other, second in times if other == key]
        at: float = seconds[0] + chain.step
        marks = {at}
        while at <= reached and (chain.until is None or at < chain.until):
            at += chain.step
            marks.add(at)
        found[key] = sorted(marks | {second + chain.after + 0.5 for second in seconds})
    return found


@settings(max_examples=15, deadline=None)
@given(
    times=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), min_size=1, max_size=8),
    step=st.integers(1, 25),
    until=st.one_of(st.none(), st.integers(0, 80)),
    after=st.integers(0, 30),
    lateness=st.sampled_from([0, 5]),
)
def test_chains_do_not_depend_on_the_cut(
    times: list[tuple[str, int]], step: int, until: int | None, after: int, lateness: int
) -> None:
    times.sort(key=lambda one: one[1])
    for per_epoch in (None, 1, 3):
        chain = Chain(step, until, after)
        assert fired(flow_of(times, per_epoch, lateness, chain)) == wanted(times, lateness, chain)


def test_a_chain_within_the_data_is_whole() -> None:
    """Rows at 0, 50 and 100, a timer every ten seconds until 30."""
    for per_epoch in (None, 1):
        flow = flow_of([("a", 0), ("a", 50), ("a", 100)], per_epoch, 0, Chain(10, 30, 1000))
        assert fired(flow)["a"][:3] == [10, 20, 30]


def test_a_long_way_in_one_epoch_is_no_loop() -> None:
    times = [("a", 0), ("a", MAX_REPEATS + 100)]
    assert len(fired(flow_of(times, None, 0, Chain(1, None, 1)))["a"]) == MAX_REPEATS + 100 + 1 + 2


class Loop(seep.Operator):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.set_timer(row.at)

    def on_timer(self, at: datetime, ctx: Any) -> None:
        ctx.set_timer(at)


@pytest.mark.parametrize("per_epoch", [None, 1])
def test_a_loop_is_found(per_epoch: int | None) -> None:
    flow = seep.Flow("loop")
    rows = [{"key": "a", "at": START + second * SECOND} for second in (1, 2)]
    source = flow.source("src", seep.MemorySource(rows, per_epoch=per_epoch), time="at")
    source.key_by("key").apply(Loop(), out={"key": str}).named("loop").collect("out")
    with pytest.raises(Misuse, match="loop: on_timer sets timers that are already due, without end"):
        seep.run(flow, on="inline")


@settings(max_examples=6, deadline=None)
@given(kills=st.sets(st.integers(0, 4)), scaled=st.booleans())
def test_chains_are_the_same_after_kills(kills: set[int], scaled: bool) -> None:
    times = [("a", 0), ("b", 7), ("a", 21), ("c", 33)]
    chain = Chain(4, None, 2)
    driver = Driver(flow_of(times, None, 0, chain))
    for number, (key, second) in enumerate(times):
        driver.feed("src", [{"key": key, "at": START + second * SECOND}])
        driver.checkpoint()
        if number in kills:
            driver.kill("chain", 0)
        if scaled and number == 1:
            driver.scale("chain", 2)
    driver.close()
    found: dict[str, list[float]] = {}
    for row in driver.output("out"):
        found.setdefault(row["key"], []).append(row["at"])
    assert found == wanted(times, 0, chain)
    driver.assert_exactly_once()
