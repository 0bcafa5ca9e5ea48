"""Kills, pauses, cuts and scaling on a real job, by a plan; and what the verdict notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seep.errors import Misuse
from seep.running.chaos import Chaos, Verdict, deeds
from seep.testing import chaos
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, assert_exact, counting

ROWS = 60_000
PLAN = "kill every 2s; pause 1s every 4s; cut 0.5s every 3s; scale random every 3s"


@pytest.mark.timeout(120)
def test_a_plan_of_everything_loses_nothing(begin: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("chaotic", ROWS, gate, parts=2), workers=3)
    advance(job, 5)
    found = chaos(job, PLAN, seconds=12.0)
    assert found.good, found
    assert found.done["kill"] >= 4
    assert found.done["pause"] >= 2
    assert len(found.recovery_ms) == found.done["kill"]
    gate.touch()
    assert_exact(job.wait(60.0)["counts"].to_pylist(), ROWS)


class Crooked:
    """A job whose books do not balance, and whose sink goes backwards."""

    def __init__(self) -> None:
        self.epochs = [5, 9, 7]

    def status(self) -> dict[str, Any]:
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        out = [{"partition": "out/0", "epoch": epoch, "worker": "w"}]
        return {"outcome": "running", "kinds": {"out": "sink"}, "operators": {"out": out}}

    def scale(self, operator: str, count: int) -> dict[str, Any]:
        return {}

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        return {}

    def audit(self) -> dict[str, Any]:
        edges = [{"edge": "a>b", "sent": 10, "taken": 8}, {"edge": "b>c", "sent": 3, "taken": 4}]
        return {"edges": edges, "sinks": {"out": {"sent": 5, "committed": 5}}}


def test_a_crooked_job_is_found_out(begin: Start, tmp_path: Path) -> None:
    job = begin(counting("straight", 100, tmp_path / "gate"))
    found = Chaos(Crooked(), job.directory.path).run("scale random every 100ms", 0.3)
    assert (found.lost, found.duplicated, found.reordered) == (2, 1, 1)
    assert not found.good
    assert Verdict().good


@pytest.mark.parametrize("plan", ["", "kill sometimes", "pause every 5s", "cut 1 every 2s", "kill every 900s"])
def test_a_plan_that_is_none(plan: str) -> None:
    with pytest.raises(Misuse):
        deeds(plan, 10.0)
