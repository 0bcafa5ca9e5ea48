"""The books of a real job add up inside its nodes, too, whoever is killed and however they are partitioned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import seep
from seep.running.job import Job
from tests.scenarios.oracles import advance

ROWS = 60_000
START = datetime(2024, 1, 1, tzinfo=UTC)


class Large(seep.Operator):
    """Refuses some rows, and says every third."""

    seen = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        if row.n % 97 == 96:
            raise ValueError("no")
        self.seen.value += 1
        if self.seen.value % 3 == 0:
            ctx.emit({"key": ctx.key, "seen": self.seen.value})


def audited() -> seep.Flow:
    """Late rows, dead letters, filtered rows, windows that are open, rows that wait for a partner."""
    flow = seep.Flow("audited", epoch="20ms", checkpoint="200ms")
    rows = [
        {"key": f"k{i % 50}", "n": i, "at": START + timedelta(seconds=i // 10 - (120 if i % 31 == 30 else 0))}
        for i in range(ROWS)
    ]
    numbers = flow.source("numbers", seep.MemorySource(rows, per_epoch=40), time="at", lateness="5s")
    keyed = numbers.filter(pl.col("n") % 11 != 3).key_by("key")
    window = keyed.window(seep.tumbling("30s"), items=seep.count(), sum=seep.total("n"))
    window.named("windows").scale(start=2).collect("minutes")
    keyed.join(numbers.key_by("key"), within="10s").named("pairs").scale(start=2).collect("joined")
    keyed.apply(Large, out={"key": str, "seen": int}).named("large").collect("thirds")
    return flow


def settled(job: Job) -> dict[str, Any]:
    answer = job.audit()
    assert (answer["problems"], answer["balanced"]) == ([], True)
    for name, node in answer["nodes"].items():
        assert sum(node["in"].values()) == sum(node["out"].values()), name
    return answer


@pytest.mark.timeout(180)
def test_all_nodes_add_up_under_kills_splits_and_a_savepoint(begin: Callable[..., Job]) -> None:
    job = begin(audited())
    advance(job, 20, "minutes")
    job.kill("windows", 0)
    job.scale("windows", 3)
    advance(job, 20, "minutes")
    found = settled(job)
    assert found["nodes"]["numbers"]["out"]["filtered"] > 0
    window = found["nodes"]["windows"]["out"]
    assert min(window["closed"], window["pending"], window["late"]) > 0
    assert found["nodes"]["pairs"]["out"]["pending"] > 0
    job.scale("windows", 1)
    job.kill("pairs", 1)
    advance(job, 10, "minutes")
    before = settled(job)
    job.savepoint("v1")
    job.close()

    job = begin(audited(), restore="v1", workers=1)
    advance(job, 10, "minutes")
    after = settled(job)
    # The accounts go on: they do not begin anew.
    for name in ("numbers", "windows", "large"):
        first = next(iter(before["nodes"][name]["in"]))
        assert after["nodes"][name]["in"][first] > before["nodes"][name]["in"][first]
