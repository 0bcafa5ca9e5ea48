"""Workers as processes of this machine, with a zygote that only listens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.backends.local import LocalBackend
from seep.backends.needs import LOCAL_WORKERS
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory


def test_no_policy_fills_the_machine_with_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scale(max=4096)` and a wish for as many: each partition that is to come wants a worker of its own."""
    asked: list[bytes] = []
    zygote: Any = SimpleNamespace(sendall=asked.append)
    backend = LocalBackend(JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings()))
    monkeypatch.setattr(backend, "_connection", lambda: zygote)
    for wanted in (3, 4_000, 4_000):
        backend.want(wanted)
    assert len(asked) == len(backend.workers()) == LOCAL_WORKERS
