"""Kills, pauses, cuts and scaling on a real job, by a plan; and what the verdict notices."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import seep
from seep.cli.main import main
from seep.errors import Misuse, Retry
from seep.running.chaos import Chaos, Verdict, unshown
from seep.running.deeds import deeds
from seep.running.job import Job
from seep.testing import chaos
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import Gated, advance, assert_exact, counting

ROWS = 60_000
PLAN = "kill every 2s; pause 1s every 4s; cut 0.5s every 3s; scale random every 3s"


@pytest.mark.timeout(120)
def test_a_plan_of_everything_loses_nothing(begin: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("chaotic", ROWS, gate, files=tmp_path / "files", parts=2), workers=3)
    advance(job, 5)
    found = chaos(job, PLAN, seconds=10.0)
    assert found.good, found
    assert found.done["kill"] >= 3
    assert found.done["pause"] >= 1
    assert found.compared > 1_000, "rows of both sinks, beside what one process makes of the same input"
    assert len(found.recovery_ms) == found.done["kill"]
    assert not list((job.directory.path / "savepoints").iterdir()), "nothing is left behind"
    gate.touch()
    assert_exact(job.wait(60.0)["counts"].to_pylist(), ROWS)


class Stamp(seep.Operator):
    """Says which process it ran in: something that no two runs agree on."""

    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.emit({"key": row.key, "n": row.n, "process": os.getpid() if row.n % 10 == 0 else 0})


@pytest.mark.timeout(60)
def test_values_that_differ_are_found_out_though_the_books_balance(begin: Start, tmp_path: Path) -> None:
    flow = seep.Flow("stamped", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(ROWS, 1_000, tmp_path / "gate")).key_by("key")
    numbers.apply(Stamp(), out={"key": str, "n": int, "process": int}).named("stamp").collect("stamped")
    job = begin(flow)
    advance(job, 5, "stamped")
    found = chaos(job, "scale random every 500ms", seconds=1.5)
    assert not found.good
    assert found.wrong == found.lost > 0
    assert found.compared / 15 < found.wrong < found.compared / 7, "one row in ten, no other"
    assert (found.duplicated, found.reordered) == (0, 0)
    assert any("stamped, bucket" in problem for problem in found.problems)


class Quiet(seep.Operator):
    """Says of a key, by a timer, that nothing came for a while; and how often it was touched, by the tick."""

    seen = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.seen.value += 1
        ctx.set_timer(row.at + timedelta(milliseconds=150))

    def on_timer(self, at: datetime, ctx: Any) -> None:
        ctx.emit({"key": ctx.key, "at": at, "seen": self.seen.value})


def timed(i: int) -> dict[str, Any]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return {"key": f"k{i * 7919 % 23}", "n": i, "at": start + timedelta(milliseconds=i - i * 31 % 40)}


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_the_witness_takes_up_watermarks_windows_timers_and_tables_where_they_are(begin: Start, tmp_path: Path) -> None:
    flow = seep.Flow("timed", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(ROWS, 1_000, tmp_path / "gate", timed), time="at", lateness="10ms")
    names = flow.source("names", seep.MemorySource([{"key": f"k{n}", "name": n} for n in range(23)]))
    keyed = numbers.key_by("key")
    windows = keyed.window(seep.tumbling("100ms"), n=seep.count(), middle=seep.median("n")).named("windows")
    windows.sink("files", seep.FileSink(tmp_path / "files", format="jsonl"))
    windows.late.collect("late")
    keyed.window(seep.sliding("300ms", every="100ms"), emit="update", n=seep.count()).named(
        "sliding"
    ).changes().collect("updates")
    keyed.apply(Quiet(), out={"key": str, "at": datetime, "seen": int}).named("quiet").collect("quiet-out")
    keyed.join_table(names.key_by("key").table()).named("join").key_by("name").aggregate(n=seep.count()).named(
        "by-name"
    ).changes().collect("names-out")
    job = begin(flow, workers=3)
    advance(job, 20, "updates", 60.0)
    found = chaos(job, "kill every 1500ms; scale random every 1s", seconds=4.0)
    assert found.good, found
    assert found.compared > 1_000


class Crooked:
    """A job whose books do not balance, and whose sink goes backwards."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.epochs = [5, 9, 7]

    def status(self) -> dict[str, Any]:
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        out = [{"partition": "out/0", "number": 0, "epoch": epoch, "worker": "w"}]
        one = {"partition": "one/0", "number": 0, "epoch": epoch, "worker": "w"}
        kinds = {"one": "operator", "out": "sink"}
        return {"outcome": "running", "kinds": kinds, "operators": {"one": [one], "out": out}}

    def scale(self, operator: str, count: int) -> dict[str, Any]:
        raise Retry("it has not started yet")

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        return {}

    def savepoint(self, name: str) -> dict[str, Any]:
        return self.job.savepoint(name)

    def audit(self) -> dict[str, Any]:
        edges = [{"edge": "a>b", "sent": 10, "taken": 8}, {"edge": "b>c", "sent": 3, "taken": 4}]
        return {**self.job.audit(), "edges": edges, "sinks": {"out": {"sent": 5, "committed": 5}}}


def test_a_crooked_job_is_found_out(begin: Start, tmp_path: Path) -> None:
    job = begin(counting("straight", 10_000, tmp_path / "gate"))
    found = Chaos(Crooked(job), job.directory.path).run("scale random every 100ms", 0.3)
    assert (found.lost, found.duplicated, found.reordered) == (2, 1, 1)
    assert found.done["scale"] == 0, "the job cannot now, which is no reason to end without a verdict"
    assert not found.good
    assert Verdict().good
    assert Verdict().as_dict()["recovery_ms"] == {}, "nobody was killed"


@pytest.mark.timeout(60)
def test_sources_that_were_replaced_before_it_began(begin: Start, tmp_path: Path) -> None:
    job = begin(counting("replaced", ROWS, tmp_path / "gate", parts=2))
    advance(job, 5)
    job.scale("numbers", 2)
    job.savepoint("later")  # by then no journal names the partition that was replaced
    found = chaos(job, "scale random every 400ms", seconds=1.0)
    assert found.good, found
    assert found.compared > 0


def test_a_flow_that_does_not_survive_gets_a_verdict(begin: Start, tmp_path: Path) -> None:
    job = begin(counting("mortal", 10_000, tmp_path / "gate"))

    class Mortal(Crooked):
        def kill(self, operator: str, index: int) -> dict[str, Any]:
            self.job.stop()
            return {"worker": "w"}

        def status(self) -> dict[str, Any]:
            return self.job.status()

    found = Chaos(Mortal(job), job.directory.path).run("kill every 100ms", 20.0)
    assert found.problems == ["the flow has stopped before chaos was over"]
    assert not found.good


@pytest.mark.timeout(60)
def test_from_the_command_line(
    begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begin(counting("commanded", ROWS, tmp_path / "gate"))
    advance(job, 5)
    call = ["seep", "chaos", "commanded", "--plan", "kill every 1s; scale random every 1s", "--for", "2s", "--json"]
    monkeypatch.setattr(sys, "argv", [*call, "--seed", "3"])
    with pytest.raises(SystemExit) as ended:
        main()
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ended.value.code == 0, found
    assert (found["verdict"], found["lost"], found["wrong"]) == ("good", 0, 0)
    assert found["compared"] > 0
    assert set(found["recovery_ms"]) == {"p50", "p90", "max"}


@pytest.mark.parametrize("plan", ["", "kill sometimes", "pause every 5s", "cut 1 every 2s", "kill every 900s"])
def test_a_plan_that_is_none(plan: str) -> None:
    with pytest.raises(Misuse):
        deeds(plan, 10.0)


def test_a_plan_of_too_much() -> None:
    """All deeds are drawn beforehand: that took the whole memory."""
    with pytest.raises(Misuse, match=r"^'kill every 1us' for 10 s is more than 100,000 deeds; do it less often, or "):
        deeds("scale random; kill every 1us", 10.0)


def test_nothing_is_scaled_where_there_is_no_operator() -> None:
    chaos: Any = SimpleNamespace(verdict=Verdict(done={"scale": 1}), random=Random(1), job=None)
    Chaos._scale(chaos, {"kinds": {"in": "source", "out": "sink"}, "operators": {"in": [{}], "out": [{}]}})
    assert chaos.verdict.done == {"scale": 0}


def test_a_verdict_on_nothing_is_not_good() -> None:
    """Whoever relies on it would take for proven what was never tried."""
    assert unshown(Verdict(done={"kill": 1}, compared=7)) == []
    for verdict, why in ((Verdict(done={"kill": 0}, compared=7), "of the plan"), (Verdict(done={"kill": 1}), "no row")):
        assert [why in one for one in unshown(verdict)] == [True]
