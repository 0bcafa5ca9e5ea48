"""Every kind of worker is killed in the middle of a split and of a merge: the output is as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seep.running.job import Job
from tests.scenarios.oracles import advance, assert_exact, counting, scale_and_kill

ROWS = 40_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("victim", ["numbers", "old", "new", "counts"])
def test_a_kill_during_split_and_merge(begin: Callable[..., Job], tmp_path: Path, victim: str) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("replace", ROWS, gate), workers=3)
    advance(job, 10)
    scale_and_kill(job, 3, victim)
    advance(job, 5)
    scale_and_kill(job, 1, victim)
    advance(job, 5)
    gate.touch()
    result = job.wait(60)
    assert_exact(result["counts"].to_pylist(), ROWS)
    lost = [what for _, what in job.host.view.decisions if "lost" in what or "silent" in what]
    assert len(lost) >= 1
