"""Jobs of one test: started on request in a home of their own, ended whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.backends.local import LocalBackend
from seep.running.job import Job
from seep.runtime.job import JobDirectory
from tests.servers import RedisServer

Start = Callable[..., Job]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the jobs of this test live; workers that a killed controller left behind are ended."""
    path = tmp_path / "home"
    monkeypatch.setenv("SEEP_HOME", str(path))
    yield path
    for key in path.glob("*/key"):
        LocalBackend(JobDirectory(key.parent)).close()


@pytest.fixture
def begin(home: Path) -> Iterator[Start]:
    jobs: list[Job] = []

    def make(flow: seep.Flow, **options: Any) -> Job:
        jobs.append(seep.start(flow, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of one test, which may do anything to it."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()
