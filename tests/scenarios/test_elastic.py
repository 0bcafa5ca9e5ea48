"""The controller scales by itself: a load that one partition cannot take, on real workers and real metrics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import seep
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import Gated, expected, until

ROWS = 15_000
RATE = 1_000
SLEEP_SECONDS = 0.002


class Slow(seep.Operator):
    """Half a thousand rows a second, asleep meanwhile."""

    count = seep.ValueState(int, default=0)
    sum = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        time.sleep(SLEEP_SECONDS)
        self.count.value += 1
        self.sum.value += row.n
        ctx.emit({"key": row.key, "count": self.count.value, "sum": self.sum.value})


def slow(name: str, gate: Path, rows: int, policy: Any) -> seep.Flow:
    flow = seep.Flow(name, epoch="50ms", checkpoint="500ms")
    out = {"key": str, "count": int, "sum": int}
    numbers = flow.source("numbers", Gated(rows, RATE, gate))
    worked = numbers.key_by("key").apply(Slow(), out=out).named("work").scale(start=1, max=6, policy=policy)
    worked.collect("worked")
    return flow


@pytest.mark.timeout(120)
def test_a_bottleneck_is_scaled_out_and_nothing_is_lost(begin: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(slow("elastic", gate, ROWS, "rate"), workers=2)
    until(lambda: len(job.journal.live("work")) > 1, "the first growth", 60.0)
    explained = job.explain("work")
    made = next(d for d in explained["decisions"] if d["done"])
    assert (made["before"], made["inputs"]["rows_per_second"]) != (0, [])
    assert made["after"] >= 3, made
    assert explained["policies"] == {"work": "rate"}
    gate.touch()
    last: dict[str, tuple[int, int]] = {}
    for row in job.wait(90.0)["worked"].to_pylist():
        assert row["count"] == last.get(row["key"], (0, 0))[0] + 1, "in order, each once"
        last[row["key"]] = (row["count"], row["sum"])
    assert last == expected(ROWS)
