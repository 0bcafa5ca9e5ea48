"""Skewed keys on real processes: split points follow the load, and the result stays exact."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import seep
from seep.model.keyspace import bucket_of_values
from seep.running.job import Job
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until

CROWDED = [n for n in range(4_000) if bucket_of_values((n,), [pa.int64()]) < 512][:200]
SPARSE = [n for n in range(4_000) if bucket_of_values((n,), [pa.int64()]) >= 512][:200]


def skewed(i: int) -> dict[str, int]:
    """Seven of eight rows have keys in the first eighth of the key space."""
    return {"key": (CROWDED if i % 8 else SPARSE)[i * 7919 % 200]}


class Gated(seep.GeneratorSource):
    def __init__(self, rows: int, gate: Path) -> None:
        super().__init__(skewed, rate=4_000, rows=rows)
        self.gate = gate

    def _released(self, elapsed_ms: int) -> int:
        return 2**62 if self.gate.exists() else super()._released(elapsed_ms)


def taken(job: Job) -> list[int]:
    """Rows taken so far by each partition of `count`, in key-range order."""
    return [p["statistics"].get("rows_in", 0) for p in job.status()["operators"]["count"]]


def shares(job: Job) -> list[float]:
    """Of the next few thousand rows: which part each partition of `count` takes."""
    before, found = taken(job), [0]

    def enough() -> bool:
        found[:] = [now - then for now, then in zip(taken(job), before, strict=True)]
        return sum(found) > 4_000

    until(enough, "rows to compare")
    return [rows / sum(found) for rows in found]


@pytest.mark.timeout(90)
def test_a_rebalance_evens_out_what_partitions_take(begin: Start, tmp_path: Path) -> None:
    rows = 100_000
    flow = seep.Flow("skewed", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(rows, tmp_path / "gate"))
    numbers.key_by("key").aggregate(n=seep.count()).named("count").scale(start=2).collect("counts")
    job = begin(flow)
    with pytest.raises(seep.Misuse, match="numbers is a source"):
        job.rebalance("numbers")
    until(lambda: job._control.planned("count")[0], "a measured load")
    before = shares(job)
    assert max(before) > 0.8, "halves of the key space get very different parts of the rows"
    assert job.rebalance("count")["rebalanced"]
    after = shares(job)
    assert max(after) < 0.6, (before, after)
    assert len(after) == 2
    assert max(e.key_range.size for e in job.journal.live("count")) > 3_000
    job.scale("count", 3)
    until(lambda: "not measured" not in job._control.planned("count")[1], "a measured load")
    assert max(shares(job)) < 0.65, "the busiest was split by its load"
    (tmp_path / "gate").touch()
    counts = {row["key"]: row["n"] for row in job.wait(60)["counts"].to_pylist()}
    expected: dict[int, int] = {}
    for i in range(rows):
        expected[skewed(i)["key"]] = expected.get(skewed(i)["key"], 0) + 1
    assert counts == expected


@pytest.mark.timeout(90)
def test_a_killed_partition_comes_back_as_two_that_share_its_load(begin: Start, tmp_path: Path) -> None:
    rows = 60_000
    flow = seep.Flow("parts", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(rows, tmp_path / "gate"))
    numbers.key_by("key").aggregate(n=seep.count()).named("count").scale(start=1, max=2).collect("counts")
    job = begin(flow, workers=3, spare=2, recover_in=2)
    until(lambda: sum(taken(job)) > 4_000, "a measured load and some checkpoints")
    job.kill("count", 0)
    until(lambda: len(job.journal.live("count")) == 2, "its parts")
    first = job.journal.live("count")[0].key_range
    assert first.high < 1_024, "cut by load: most keys lie in the first eighth"
    assert max(shares(job)) < 0.7
    job.kill("count", 1)  # it may have two partitions: this one comes back as it is
    until(lambda: any("count/1 restarts" in step["what"] for step in job.explain()["steps"]), "its return")
    (tmp_path / "gate").touch()
    result = job.wait(60.0)["counts"]
    expected: dict[int, int] = {}
    for i in range(rows):
        key = skewed(i)["key"]
        expected[key] = expected.get(key, 0) + 1
    assert {row["key"]: row["n"] for row in result.to_pylist()} == expected
