"""The controller's eye: a policy that never comes back holds up nobody who wants to end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from seep.partition.contract import Graph, Node
from seep.runtime import watch as watching
from seep.runtime.watch import Watch


class Reader:
    closed = False

    def read(self, window_seconds: float) -> dict[Any, Any]:
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_policy_that_hangs_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "EVERY_SECONDS", 0.001)
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", 0.05)
    graph = Graph({"work": Node("work", "operator", None, policy="rate")}, ())
    host: Any = SimpleNamespace(machine=SimpleNamespace(graph=graph), ended=threading.Event())
    reader, asked, free = Reader(), threading.Event(), threading.Event()
    watch = Watch(host, reader)
    monkeypatch.setattr(watch, "_look", lambda: (asked.set(), free.wait()))
    watch.start()
    assert asked.wait(10)
    watch.close()
    assert reader.closed
    assert capsys.readouterr().err == "seep: the policy of work has not come back; it is left behind\n"
    free.set()
