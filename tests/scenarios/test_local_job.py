"""A real job of real processes: workers are killed, an operator is scaled, the controller vanishes and comes back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import seep
from seep.backends import unborn
from seep.backends.local import LocalBackend
from seep.control.requests import ScaleTo, StopFlow
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory
from tests.scenarios.oracles import until
from tests.scenarios.toy import Job


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Job]]:
    jobs: list[Job] = []

    def make(rows: int) -> Job:
        jobs.append(Job(tmp_path / "job", rows, LocalBackend))
        return jobs[-1]

    yield make
    for job in jobs:
        job.host.abandon()
        job.host.wait(10)
        LocalBackend(job.directory).close()


@pytest.mark.timeout(90)
def test_kills_scaling_and_a_new_controller_change_nothing(start: Callable[[int], Job]) -> None:
    job = start(40_000)
    job.advance(10)
    killed = job.host.kill(job.host.partition("count", 0))
    job.until(lambda: killed not in job.host.view.workers)
    job.advance(10)
    job.host.request(ScaleTo("count", 3))
    job.until(lambda: len(job.host.view.journal.live("count")) == 3)
    job.advance(5)
    term = job.host.view.journal.term
    job.host.abandon()
    assert job.host.wait(10)
    job.new_controller()
    job.until(lambda: job.host.view.journal.term > term)
    job.advance(5)
    assert job.host.kill(job.host.partition("numbers", 0))
    job.advance(5)
    assert job.host.kill(job.host.partition("out", 0))
    assert job.host.wait(60)
    assert (job.host.outcome, job.host.report) == ("finished", "")
    job.assert_exact()
    assert job.host.backend.workers() == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("reason", "outcome"), [("stop", "stopped"), ("drain", "finished")])
def test_a_stopped_job_leaves_no_process_and_shows_its_numbers(
    start: Callable[[int], Job], reason: str, outcome: str
) -> None:
    job = start(10_000_000)
    job.advance(10)
    cards = job.directory.registered()
    port = next(iter(cards.values()))["metrics_port"]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b"seep_worker_cpu_seconds" in answer.read()
    job.host.request(StopFlow(reason))
    assert job.host.wait(20)
    assert job.host.outcome == outcome
    assert job.host.backend.workers() == []
    assert job.directory.registered() == {}


def _only_in(process: int) -> int:
    if os.getpid() != process:
        raise ImportError("no module named 'elsewhere'")
    return process


class Stuck:
    """Can be sent to another process, but not be read there."""

    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(),)


@pytest.mark.timeout(60)
def test_workers_that_cannot_start_end_the_flow_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    flow, stuck = seep.Flow("stuck"), Stuck()
    rows = flow.source("rows", seep.MemorySource([{"a": 1}]))
    rows.map(lambda row: {"a": row.a, "b": bool(stuck)}, schema={"a": int, "b": bool}).collect("out")
    job = seep.start(flow, on="local", workers=2)
    try:
        with pytest.raises(seep.SeepError, match="workers cannot be started: ImportError: no module named 'elsewhere'"):
            job.wait(50)
    finally:
        job.close()


class Lonely:
    """Starts a thread where it is read, so that workers are not forked; those that are started afresh find no seep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "SEEP_CONTROL" in os.environ:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            os.environ["PYTHONPATH"] = str(state["path"])


@pytest.mark.timeout(60)
def test_workers_that_end_before_they_have_registered_end_the_flow_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    monkeypatch.setattr(unborn, "PATIENCE_SECONDS", 1.0)
    monkeypatch.chdir(tmp_path)  # else it would be found here
    path = tmp_path / "other"
    (path / "seep").mkdir(parents=True)
    (path / "seep" / "__init__.py").write_text("raise ImportError('not this seep')")
    flow, lonely = seep.Flow("lonely"), Lonely(path)
    rows = flow.source("rows", seep.MemorySource([{"a": 1}]))
    rows.map(lambda row: {"a": row.a, "b": bool(lonely)}, schema={"a": int, "b": bool}).collect("out")
    job = seep.start(flow, on="local", workers=2)
    try:
        with pytest.raises(seep.SeepError, match="workers cannot be started: ImportError: not this seep; see "):
            job.wait(50)
    finally:
        job.close()


@pytest.mark.timeout(60)
def test_a_killed_zygote_is_replaced(tmp_path: Path) -> None:
    """Its workers held its end of the connection open: nobody saw that it was gone, and no worker came any more."""
    directory = JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings())
    backend = LocalBackend(directory)
    try:
        backend.want(2)
        until(lambda: len(directory.registered()) == 2, "two workers")
        zygote = backend._zygote
        assert zygote is not None
        zygote.kill()
        zygote.wait()
        lost, *_ = directory.registered()
        backend.kill(lost)
        until(lambda: lost in backend.events(), "its end to be told")
        backend.want(2)

        def another() -> bool:
            backend.want(2)
            backend.events()
            return len(directory.registered()) == 2

        until(another, "another one")
        assert backend.problem() == ""
        assert backend._zygote is not zygote
    finally:
        backend.close()
    assert directory.registered() == {}
