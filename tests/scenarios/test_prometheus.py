"""Scaling by a real Prometheus server: it finds the workers itself; when it is slow, gone, or has only old samples,
nothing is decided."""

from __future__ import annotations

import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import seep
from benchmarks.servers.prometheus import Prometheus
from seep.connectors.generator import SPLITS
from seep.control.observed import BUSY, Observed
from seep.running.job import Job
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import KEYS, advance, number, until
from tests.scenarios.test_elastic import Slow

RATE = 450
BLOCK_ROWS = seep.GeneratorSource(number, rate=450).block_rows
"""One partition can just take that, which is more than it should have to."""
OUT = {"key": str, "count": int, "sum": int}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path / "prometheus")
    yield server
    server.end()


class Behind:
    """A Prometheus whose clock is behind: stands before a real one, and asks it for how things were."""

    def __init__(self, url: str) -> None:
        self.seconds = 0.0
        behind = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    answer = httpx.get(f"{url}{self.path}&time={time.time() - behind.seconds:.3f}")
                except httpx.HTTPError:
                    self.send_error(502)
                    return
                self.send_response(answer.status_code)
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Told:
    """Wishes for what stands in a file: that a test says otherwise must reach a flow's own copy of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(operators, int(self.path.read_text()))


@pytest.fixture
def behind(prometheus: Prometheus) -> Iterator[Behind]:
    server = Behind(prometheus.url)
    yield server
    server.end()


def decisions(job: Job) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job.explain("work")["decisions"]
    return found


def held(job: Job) -> str:
    return str(decisions(job)[-1]["held"]) if decisions(job) else ""


def done(job: Job) -> int:
    return sum(made["done"] for made in decisions(job))


def counted(job: Job) -> float:
    """Looks without metrics, by the controller's own numbers."""
    for target in job.targets()[0]["targets"]:
        try:
            text = httpx.get(f"http://{target}/metrics").text
        except httpx.HTTPError:
            continue  # a worker that is no longer needed
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "seep_controller_held_total" and sample.labels["reason"] == "metrics":
                    return sample.value
    raise AssertionError("the controller is not among the targets")


def assert_nothing_happens(job: Job, why: str) -> None:
    """No decision, for this reason; the flow goes on, and it is counted."""
    until(lambda: held(job).startswith(why), why)
    assert "\n" not in held(job)
    changes, looks = done(job), counted(job)
    advance(job, 20, "worked")
    until(lambda: counted(job) >= looks + 2, "two more looks")
    assert done(job) == changes
    assert held(job).startswith(why)


def assert_each_once(rows: list[dict[str, Any]]) -> None:
    """Wherever the flow was stopped: of every split the numbers up to some point, each once, in order for each key."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0])
    splits: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        before = sums[row["key"]]
        assert row["count"] == len(before)
        n = row["sum"] - before[-1]
        assert number(n)["key"] == row["key"]
        before.append(row["sum"])
        splits[n // BLOCK_ROWS % SPLITS].append(n)
    assert (len(sums), len(splits)) == (KEYS, SPLITS)
    for split, numbers in splits.items():
        dealt = (block * BLOCK_ROWS + i for block in count(split, SPLITS) for i in range(BLOCK_ROWS))
        assert sorted(numbers) == list(islice(dealt, len(numbers)))
        for key in sums:
            of_key = [n for n in numbers if number(n)["key"] == key]
            assert of_key == sorted(of_key)


@pytest.mark.server
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus")
@pytest.mark.timeout(120)
def test_a_flow_is_scaled_by_prometheus_and_runs_on_without_it(begin: Start, prometheus: Prometheus) -> None:
    flow = seep.Flow("observed", epoch="50ms", checkpoint="500ms")
    worked = flow.source("numbers", seep.GeneratorSource(number, rate=RATE)).key_by("key").apply(Slow(), out=OUT)
    worked.named("work").scale(start=1, max=6, policy="rate").collect("worked")
    job = begin(flow, workers=2, prometheus=prometheus.url)
    until(lambda: "ConnectError" in held(job), "the first look")
    prometheus.start(job.api.address, job.directory.path / "token")
    until(lambda: done(job), "a decision by its numbers", 60.0)
    made = next(one for one in decisions(job) if one["done"])
    assert made["before"] == 1, made
    until(lambda: len(job.journal.live("work")) == made["after"] and not job.journal.replaces, "the growth")
    seen = 'seep_controller_partitions{flow="observed",operator="work"}'
    until(lambda: prometheus.value(seen) == made["after"], "the controller's own numbers")

    prometheus.signal(signal.SIGSTOP)
    assert_nothing_happens(job, f"metrics: Prometheus at {prometheus.url} has not answered for 1 s")
    prometheus.end()
    assert_nothing_happens(job, f"metrics: Prometheus at {prometheus.url}: ConnectError")
    assert len(job.journal.live("work")) >= made["after"]
    job.stop(drain=True)
    assert_each_once(job.wait(60.0)["worked"].to_pylist())


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus")
@pytest.mark.timeout(60)
def test_a_server_that_has_only_old_samples_decides_nothing(
    begin: Start, prometheus: Prometheus, behind: Behind, tmp_path: Path
) -> None:
    """Whether its clock is behind, or its targets are gone: it answers as ever."""
    wish = tmp_path / "wish"
    wish.write_text("1")
    flow = seep.Flow("old", epoch="20ms", checkpoint="200ms")
    worked = flow.source("numbers", seep.GeneratorSource(number, rate=RATE)).key_by("key").aggregate(count=seep.count())
    worked.named("work").scale(start=1, max=6, policy=Told(wish)).collect("worked")
    job = begin(flow, workers=2, prometheus=behind.url)
    prometheus.start(job.api.address, job.directory.path / "token")
    until(lambda: decisions(job) and not held(job), "a look at fresh samples", 30.0)
    known = time.time()
    until(lambda: time.time() > known + 3.5, "some seconds that can be looked back at")

    behind.seconds = 3.5
    until(lambda: held(job), "the first look at old samples")
    wish.write_text("2")
    assert_nothing_happens(job, "metrics: numbers/0: its latest sample is ")
    behind.seconds = 0.0
    until(lambda: done(job) == 1, "what fresh samples allow")
    until(lambda: len(job.journal.live("work")) == 2, "its change")

    prometheus.forget_targets()
    until(lambda: held(job).startswith("metrics: "), "the first look without samples")
    wish.write_text("3")
    assert_nothing_happens(job, "metrics: numbers/0: 0 samples, 3 are needed; in the last 4 s of Prometheus at ")
    assert prometheus.value(f'count(count_over_time({BUSY}{{flow="old"}}[5m]))'), "the old ones are there"
    assert job.status()["outcome"] == "running"
    assert len(job.journal.live("work")) == 2, "what was decided before"
