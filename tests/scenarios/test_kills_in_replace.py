"""Every kind of worker is killed in the middle of a split and of a merge: the output is as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from seep.control.requests import ScaleTo
from seep.protocol.journal import Replace
from seep.running.job import Job
from tests.scenarios.oracles import advance, assert_exact, counting, process_of, send_signal, until

ROWS = 40_000


def worker_of(job: Job, victim: str) -> str:
    """The worker to kill; empty while the Replace has not come so far."""
    journal = job.journal
    replace = next((r for r in journal.replaces if r.operator == "count"), None)
    if replace is None:
        return ""
    if victim == "new":
        return next((journal.entries[p].worker for p in replace.new if journal.entries[p].worker), "")
    if victim == "old":
        return journal.entries[replace.old[-1]].worker
    return journal.live(victim)[0].worker


def scale_and_kill(job: Job, count: int, victim: str) -> None:
    before = {r.number for r in job.journal.replaces}
    seen: list[Replace] = []
    job.host.request(ScaleTo("count", count))

    def found() -> str:
        seen.extend(r for r in job.journal.replaces if r.operator == "count" and r.number not in before)
        return worker_of(job, victim)

    until(lambda: found() or (seen and not job.journal.replaces), "the Replace")
    worker = worker_of(job, victim)
    if worker:
        send_signal(process_of(job.directory, worker), signal.SIGKILL)
    until(lambda: len(job.journal.live("count")) == count and not job.journal.replaces, "the Replace to end", 60)


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
