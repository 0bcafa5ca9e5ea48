"""A word count with its workers on Spark executors: a Python worker is killed, then a whole executor; nothing shows."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.executors import executor_of
from demo.words import COUNT, OUT, build, judge
from seep.running.job import Job, start

LINES = 15_000
LINES_PER_SECOND = 1_000
LATER_EPOCHS = 5
"""Reports may be this much behind: what comes after them was made after the kill."""


def until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def advance(job: Job, seconds: float) -> None:
    """Until the sink has committed epochs that the source had not cut when this was called."""

    def epoch(node: str) -> int:
        return max((partition["epoch"] or 0 for partition in job.status()["operators"][node]), default=0)

    goal = max(epoch("lines"), epoch(OUT)) + LATER_EPOCHS
    until(lambda: job.host.report or epoch(OUT) >= goal, seconds)
    assert job.host.report == ""


@pytest.mark.server
@pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="no Java")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyspark leaves sockets to the collector
def test_kills_of_a_worker_and_of_an_executor_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    job = start(build(LINES, LINES_PER_SECOND), on="spark", master="local-cluster[2,2,900]", workers=2)
    try:
        advance(job, seconds=150)

        killed = job.kill(COUNT, 0)["worker"]
        until(lambda: killed not in job.host.view.workers, seconds=20)
        advance(job, seconds=40)

        worker = job.status()["operators"][COUNT][0]["worker"]
        executor = executor_of(job.directory.registered()[worker]["process"])
        assert executor
        os.kill(executor, signal.SIGKILL)
        until(lambda: worker not in job.host.view.workers, seconds=20)
        advance(job, seconds=60)

        result = job.wait(100)
    finally:
        job.close()
    assert judge(LINES, result[OUT].to_pylist()).exact
    assert job.host.backend.workers() == []
