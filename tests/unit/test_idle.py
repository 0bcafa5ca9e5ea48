"""Idle splits hold nobody back; who has not been read yet, or was not for a while, is not idle by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from seep import Flow, MemorySource, count, tumbling
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
