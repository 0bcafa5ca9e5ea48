"""The controller's eye: when it looks, at what, and that a policy that never comes back holds up nobody."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from seep.control.observed import Observed
from seep.partition.contract import Graph, Node
from seep.protocol.journal import Journal
from seep.runtime import watch as watching
from seep.runtime.watch import Watch, following


class Reader:
    closed = False
    interval_seconds = 1.0
    told = ""

    def read(self, window_seconds: float) -> dict[Any, Any]:
        return {}

    def now(self) -> float:
        return 0.0

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


def test_looks_are_at_fixed_times() -> None:
    """However long each takes; those that were missed are not made up for."""
    due, looks = 10.0, []
    for took in (0.4, 0.9, 2.5, 0.1):
        looks.append(due)
        due = following(due, 1.0, due + took)
    assert (looks, due) == ([10.0, 11.0, 12.0, 15.0], 16.0)


def test_what_is_decided_is_about_the_partitions_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look has one journal: that of the end of the reading, which may take long."""
    graph = Graph({"work": Node("work", "operator", None, policy="rate")}, ())
    host: Any = SimpleNamespace(machine=SimpleNamespace(graph=graph), ended=threading.Event())
    host.view = SimpleNamespace(journal=Journal(version=1), shortage="")

    class Slow(Reader):
        def read(self, window_seconds: float) -> dict[Any, Any]:
            host.view = SimpleNamespace(journal=Journal(version=2), shortage="none is left")
            return {}

    used: list[Any] = []

    def observed(graph: Graph, journal: Journal, samples: Any, at: float, fresh_seconds: float) -> Observed:
        used.append(journal.version)
        return Observed(at, {}, "nothing")

    monkeypatch.setattr(watching, "observe", observed)
    watch = Watch(host, Slow())
    monkeypatch.setattr(
        watch.governor, "look", lambda seen, journal, shortage: used.extend([journal.version, shortage]) or []
    )
    watch._look()
    assert used == [2, 2, "none is left"]


def test_the_window_follows_who_scrapes_less_often() -> None:
    """What is not enough is said with how often it is scraped and how long is waited for."""
    graph = Graph({"work": Node("work", "operator", None, policy="rate")}, ())
    host: Any = SimpleNamespace(machine=SimpleNamespace(graph=graph), ended=threading.Event())
    host.view = SimpleNamespace(journal=Journal(version=1), shortage="")
    asked: list[float] = []

    class Rarely(Reader):
        told = "a server that scrapes every 15 s"

        def read(self, window_seconds: float) -> dict[Any, Any]:
            asked.append(window_seconds)
            self.interval_seconds = 15.0
            return {}

    watch = Watch(host, Rarely())
    for _ in range(3):
        watch._look()
    assert asked == [4.0, 60.0, 60.0]
    assert watch.governor.guards.settle_seconds == 61.0
    why = "work has no live partition; in the last 60 s of a server that scrapes every 15 s"
    assert watch.decisions()[-1].held == f"metrics: {why}"


def test_a_clock_that_is_set_lets_no_time_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long something is held back is not what the samples' clock, or this machine's, says."""
    graph = Graph({"work": Node("work", "operator", None, policy="rate")}, ())
    host: Any = SimpleNamespace(machine=SimpleNamespace(graph=graph), ended=threading.Event())
    host.view = SimpleNamespace(journal=Journal(version=1), shortage="")
    reader, looks = Reader(), []
    watch = Watch(host, reader)
    monkeypatch.setattr(watch.governor, "look", lambda seen, *_: looks.append(seen.at) or [])
    for clock in (1e9, 1e9 + 3600.0, 1e9 - 3600.0):
        monkeypatch.setattr(reader, "now", lambda clock=clock: clock)
        monkeypatch.setattr("time.time", lambda clock=clock: clock)
        watch._look()
    assert looks == sorted(looks)
    assert looks[-1] - looks[0] < 60.0


def test_a_policy_that_hangs_is_told_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The last that was said before it was asked stood there for ever, such as that samples are missing. And whoever
    closed a job that had ended waited once more."""
    monkeypatch.setattr(watching, "EVERY_SECONDS", 0.001)
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", 0.05)
    asked, free = threading.Event(), threading.Event()

    class Hanging:
        def decide(self, seen: Observed, operators: Any) -> dict[str, int]:
            asked.set()
            free.wait()
            return {}

    graph = Graph({"work": Node("work", "operator", None, policy=Hanging())}, ())
    host: Any = SimpleNamespace(machine=SimpleNamespace(graph=graph), ended=threading.Event())
    host.view = SimpleNamespace(journal=Journal(version=1), shortage="")
    monkeypatch.setattr(watching, "observe", lambda *_: Observed(0.0, {}))
    watch = Watch(host, Reader())
    watch.start()
    assert asked.wait(10)
    while not watch.decisions():
        assert watch.governor.asking
    (told,) = watch.decisions()
    assert (told.operator, told.held, told.changes) == ("work", "policy: Hanging has not answered for 0 s", False)
    watch.close()
    watch.close()
    assert capsys.readouterr().err.count("has not come back") == 1
    free.set()
    watch._thread.join(10)
    assert watch.decisions() == []
