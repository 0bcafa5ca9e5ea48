"""A Ray that is asked for something after it was shut down ends the process that asks; here it only says so."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.backends import ray as backend
from seep.backends.ray import RayBackend
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory
from tests.scenarios.oracles import until

pytest.importorskip("ray")


class Ray:
    """With actors that run until they are killed; deaf ones until Ray is shut down."""

    def __init__(self, deaf: bool) -> None:
        self.deaf, self.up = deaf, True
        self.asked_too_late: list[str] = []
        self.ended = threading.Event()
        node = SimpleNamespace(remaining_processes_alive=lambda: self.up)
        self._private = SimpleNamespace(worker=SimpleNamespace(_global_node=node))

    def _asked(self, what: str) -> None:
        if not self.up:
            self.asked_too_late.append(what)

    def is_initialized(self) -> bool:
        return self.up

    def get_runtime_context(self) -> Any:
        self._asked("context")
        return SimpleNamespace(get_node_id=lambda: "0" * 56)

    def remote(self, **options: Any) -> Any:
        self._asked("remote")
        running = SimpleNamespace(remote=lambda *_: None)
        return lambda kind: SimpleNamespace(remote=lambda: SimpleNamespace(run=running))

    def get(self, running: Any) -> str:
        self.ended.wait(20.0)
        if not self.up:
            raise SystemExit
        raise RuntimeError("the actor died")

    def kill(self, slot: Any) -> None:
        self._asked("kill")
        if not self.deaf:
            self.ended.set()

    def shutdown(self) -> None:
        self.up = False
        self.ended.set()


@pytest.mark.parametrize("deaf", [False, True])
def test_ray_is_asked_for_nothing_once_it_is_shut_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    ray = Ray(deaf)
    monkeypatch.setattr(backend, "END_SECONDS", 0.2, raising=False)
    monkeypatch.setattr(RayBackend, "_init", lambda self: ray)
    slots = RayBackend(JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings()))
    slots.want(2)
    until(lambda: len(slots._actors) == 2, "two actors")
    slots.close()
    until(lambda: not slots.workers(), "no slot is left")
    assert not ray.up
    assert ray.asked_too_late == []


def test_a_process_that_ends_does_not_wait_for_a_ray_that_does_not_answer(tmp_path: Path) -> None:
    """It did so after Ctrl-C, for minutes, with all said and done."""
    program = f"""
import subprocess
import sys
import threading
from pathlib import Path
from seep.backends import held
from seep.backends.ray import RayBackend
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory

begun = threading.Event()
def init(self):
    begun.set()
    threading.Event().wait()

held.GOODBYE_SECONDS, RayBackend._init = 0.05, init
slots = RayBackend(JobDirectory.create(Path({str(tmp_path / "job")!r}), Graph({{}}, ()), Settings()))
slots.want(1)
begun.wait()
slots.close()
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
