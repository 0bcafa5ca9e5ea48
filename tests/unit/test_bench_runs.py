"""Benchmarks at their smallest, on real processes: nothing is asserted of times, only that results are right."""

from __future__ import annotations

import os
import shutil
from importlib import import_module

import pytest

from benchmarks import exactlyonce, recovery, rescale
from benchmarks.outcome import Options
from benchmarks.servers.kafka import fetched

SMALL = {
    "benchmarks.recovery": Options(kills=2, rate=5_000),
    "benchmarks.rescale": Options(kills=2, rate=5_000, seconds=1.0),
    "benchmarks.savepoint": Options(kills=1, rate=5_000, seconds=1.0, state_bytes=1_000_000),
    "benchmarks.overhead": Options(kills=1, seconds=1.0, part="metrics"),
    "benchmarks.skew": Options(kills=1, rows=8_000),
}


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="no Java")
@pytest.mark.timeout(400)
def test_workers_executors_and_the_driver_are_killed_on_spark() -> None:
    outcome = recovery.run(Options(on="spark", kills=1, rate=2_000), lambda what, share: None)
    assert outcome.verified
    assert outcome.figures["unrecovered"] == 0
    assert [outcome.figures[f"{kind}_kills"] for kind in ("worker", "executor", "driver")] == [1, 1, 1]


NEEDS_SERVERS = pytest.mark.skipif(
    not fetched() or shutil.which("redis-server") is None or shutil.which("prometheus") is None,
    reason="no Kafka (tools/setup kafka), Redis or Prometheus",
)


@pytest.mark.slow
@pytest.mark.server
@NEEDS_SERVERS
@pytest.mark.timeout(600)
def test_readers_of_committed_messages_see_each_result_once() -> None:
    outcome = exactlyonce.run(Options(kills=10), lambda what, share: None)
    assert outcome.verified
    assert outcome.figures["unrecovered"] == 0
    kinds = ("worker_kills", "pair_kills", "sink_kills", "controller_kills", "broker_kills", "broker_pauses")
    assert [outcome.figures[kind] for kind in kinds] == [5, 2, 2, 1, 1, 1]
    assert [outcome.figures[kind] for kind in ("redis_kills", "redis_emptied")] == [1, 1]


@pytest.mark.slow
@pytest.mark.server
@NEEDS_SERVERS
@pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="no Java")
@pytest.mark.timeout(600)
def test_readers_of_committed_messages_see_each_result_once_on_spark() -> None:
    outcome = exactlyonce.run(Options(on="spark", kills=5), lambda what, share: None)
    assert outcome.verified
    assert outcome.figures["unrecovered"] == 0
    assert [outcome.figures[kind] for kind in ("executor_kills", "controller_kills")] == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_upgrades_are_measured_and_verified() -> None:
    outcome = rescale.run(Options(kills=2, rate=5_000, seconds=1.0, part="upgrade"), lambda what, share: None)
    assert outcome.verified
    assert (outcome.figures["changes"], outcome.figures["gap_ms"]["count"]) == (2, 2 * rescale.RANGES)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("module", SMALL)
def test_a_small_run_is_verified(module: str) -> None:
    outcome = import_module(module).run(SMALL[module], lambda what, share: None)
    assert outcome.verified
    assert outcome.as_dict()["machine"]["cores"] >= 1
