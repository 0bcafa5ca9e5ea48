"""The end of the controller's host: whatever fails then, who waits for it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.background import Background
from seep.runtime.controller import ControllerHost
from seep.runtime.job import JobDirectory
from seep.runtime.transport import Transport


class Slots:
    """A backend that nobody wants anything of."""

    def __init__(self) -> None:
        self.ended = False

    def want(self, count: int) -> None: ...

    def release(self, worker: str) -> None: ...

    def kill(self, worker: str) -> None: ...

    def events(self) -> list[str]:
        return []

    def workers(self) -> list[str]:
        return []

    def problem(self) -> str:
        return ""

    def close(self) -> None:
        self.ended = True

    def detach(self) -> None:
        self.ended = True


@pytest.mark.parametrize("part", [Background, Transport, Slots])
def test_whatever_fails_at_the_end_nobody_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: type
) -> None:
    slots = Slots()
    host = ControllerHost(JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings()), slots, 1)
    before = {Background: host.background.close, Transport: host.transport.close, Slots: slots.detach}[part]

    def fails(*_: Any) -> None:
        before()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(part, "detach" if part is Slots else "close", fails)
    host.abandon()
    with pytest.raises(OSError, match="Input/output"):
        host.run()
    assert host.wait(0)
    assert slots.ended
