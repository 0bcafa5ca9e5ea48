"""Workers as processes of this machine: their zygote, and what happens where something is scarce."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.backends import local, unborn
from seep.backends.local import LocalBackend
from seep.backends.needs import LOCAL_WORKERS
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings())


class Zygote:
    """A process that has just been started."""

    def kill(self) -> None:
        pass

    def wait(self) -> None:
        pass


def test_a_moment_in_which_no_process_can_be_started_passes(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [BlockingIOError(11, "Resource temporarily unavailable"), Zygote()]

    def popen(*_: object, **__: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(subprocess, "Popen", popen)
    backend = LocalBackend(job)
    backend.want(1)
    for _ in range(local.STILLBORN + 1):
        assert len(backend.events()) <= 1
        assert backend.problem() == ""
    backend.want(1)
    assert answers == []
    assert len(backend.workers()) == 1
    backend.detach()


def test_when_no_process_can_be_started_for_long_the_flow_ends_and_says_why(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(*_: object, **__: object) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "python")

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(unborn, "PATIENCE_SECONDS", 0.0)
    backend = LocalBackend(job)
    for _ in range(unborn.AT_LEAST):
        assert backend.problem() == ""
        backend.want(1)
        backend.events()
    wanted = "workers cannot be started: FileNotFoundError: [Errno 2] No such file or directory: 'python'"
    assert backend.problem() == wanted
    backend.detach()


def test_a_card_that_a_power_cut_has_emptied_names_nobody(job: JobDirectory) -> None:
    job.register("w1", 1)
    (job.path / "workers" / "w2.json").touch()
    assert list(job.registered()) == ["w1"]
    LocalBackend(job).detach()


def test_no_policy_fills_the_machine_with_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scale(max=4096)` and a wish for as many: each partition that is to come wants a worker of its own."""
    asked: list[bytes] = []
    zygote: Any = SimpleNamespace(sendall=asked.append)
    backend = LocalBackend(JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings()))
    monkeypatch.setattr(backend, "_connection", lambda: zygote)
    for wanted in (3, 4_000, 4_000):
        backend.want(wanted)
    assert len(asked) == len(backend.workers()) == LOCAL_WORKERS
