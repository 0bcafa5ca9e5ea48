"""Idle splits hold nobody back; who has not been read yet, or was not for a while, is not idle by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from seep import Flow, MemorySource, count, tumbling
from seep.model.ids import BUCKETS, KeyRange
from seep.partition.splits import Splits
from seep.testing import Driver

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds: int) -> dict[str, Any]:
    return {"k": "a", "at": BEGAN + timedelta(seconds=seconds)}


def two_sources(idle: str) -> Driver:
    flow = Flow("idle")
    both = [flow.source(name, MemorySource([at(0)]), time="at", idle=idle) for name in ("one", "other")]
    both[0].union(both[1]).key_by("k").window(tumbling("10s"), n=count()).named("windows").collect("out")
    return Driver(flow)


def test_who_has_not_spoken_yet_is_waited_for() -> None:
    driver = two_sources("1h")
    driver.feed("one", [at(0)])
    driver.feed("one", [at(25)])
    assert driver.output("out") == []
    driver.feed("other", [at(3)])
    driver.close()
    assert driver.late("windows") == []
    assert [row["n"] for row in driver.output("out")] == [2, 1]


def test_who_is_silent_for_long_is_not() -> None:
    driver = two_sources("1s")
    driver.feed("one", [at(0)])
    for second in (25, 26):
        driver.advance("2s")
        driver.feed("one", [at(second)])
    assert [row["n"] for row in driver.output("out")] == [1]
    driver.feed("other", [at(3)])
    assert len(driver.late("windows")) == 1


@pytest.mark.parametrize("told", [False, True])
def test_what_is_only_looked_up_holds_no_watermark_back(told: bool) -> None:
    """A Table of few changes, with a time of its own or without: windows behind the join close by the stream."""
    for timed in ({}, {"time": "at"}):
        flow = Flow("lookup")
        rows = flow.source("rows", MemorySource([at(0)]), time="at").key_by("k")
        names = flow.source("names", MemorySource([{**at(0), "name": "x"}]), **timed).key_by("k")  # type: ignore[arg-type]
        joined = rows.join_table(names.broadcast() if told else names.table())
        joined.key_by("k").window(tumbling("10s"), n=count()).named("windows").collect("out")
        driver = Driver(flow)
        driver.feed("names", [{**at(1), "name": "x"}])
        for second in (1, 100, 1_000):
            driver.feed("rows", [at(second)])
        assert [row["n"] for row in driver.output("out")] == [1, 1]
        driver.close()
        assert [row["n"] for row in driver.output("out")] == [1, 1, 1]
        driver.assert_exactly_once()


def test_a_row_waits_for_the_versions_of_its_time() -> None:
    flow = Flow("as-of")
    rows = flow.source("rows", MemorySource([at(0)]), time="at").key_by("k")
    names = flow.source("names", MemorySource([{**at(0), "name": "x"}]), time="at").key_by("k").table(history="1h")
    rows.join_table(names, as_of=True).collect("out")
    driver = Driver(flow)
    driver.feed("names", [{**at(1), "name": "x"}])
    driver.feed("rows", [at(100)])
    assert driver.output("out") == []
    driver.feed("rows", [at(150)])
    driver.feed("names", [{**at(200), "name": "y"}])
    assert [row["name"] for row in driver.output("out")] == ["x"]


class Distant:
    """An intake whose rows come from somebody who may be away."""

    splits, lateness_us, idle_ms = 2, 0, 1_000
    away = frozenset[int]()

    def caught_up(self, split: int, position: Any) -> bool:
        return split not in self.away


def test_who_may_have_rows_that_have_not_got_here_is_not_idle() -> None:
    intake = Distant()
    splits = Splits(intake, KeyRange(0, BUCKETS))  # type: ignore[arg-type]
    near, far = splits.known.values()
    near[2], far[2] = 50, 20
    intake.away = frozenset({1})
    for now_ms in (1_000, 3_000, 5_000):
        for split, known in splits.known.items():
            splits.nothing_came(split, known, now_ms)
        assert splits.watermark(now_ms, 0) == 20, "the far one is waited for"
    intake.away = frozenset()
    splits.nothing_came(1, far, 5_500)
    assert splits.watermark(5_500, 0) == 20, "silent for half a second, by the word of the broker"
    assert splits.active(6_000) == []
