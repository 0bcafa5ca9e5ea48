"""One directory, one job: also when the one that runs is too busy to say so, and when two are started together."""

from __future__ import annotations

import errno
import fcntl
import threading
from pathlib import Path

import pytest

import seep
from seep.running.before import Claim, claimed
from seep.running.result import Result
from seep.runtime.home import job_path
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until


def numbers(rows: int = 4_000) -> seep.Flow:
    flow = seep.Flow("numbers", epoch="20ms", checkpoint="200ms")
    source = seep.GeneratorSource(lambda i: {"k": i % 10}, rate=2_000, rows=rows)
    flow.source("rows", source).key_by("k").aggregate(n=seep.count()).collect("counts")
    return flow


@pytest.mark.timeout(60)
def test_a_flow_that_runs_and_does_not_answer_is_not_replaced(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state was deleted, its workers were killed: a process that was stopped, or swapped out, answers nobody."""
    job = begin(numbers())
    until(lambda: job.journal.version > 0 and job.directory.has_begun, "the flow to begin", 20.0)
    monkeypatch.setattr("seep.running.job.answers", lambda _: False)
    with pytest.raises(
        seep.Misuse, match=r"flow 'numbers' runs already in .*, and does not answer; wait until it does"
    ):
        seep.start(numbers())
    assert sum(row["n"] for row in job.wait(40)["counts"].to_pylist()) == 4_000
    again = begin(numbers(10))
    assert sum(row["n"] for row in again.wait(40)["counts"].to_pylist()) == 10


@pytest.mark.timeout(60)
def test_of_two_that_are_started_together_one_is_refused(begin: Start) -> None:
    outcomes: list[object] = []
    together = threading.Barrier(2)

    def run() -> None:
        together.wait()
        try:
            outcomes.append(begin(numbers(200)).wait(40))
        except seep.Misuse as refusal:
            outcomes.append(str(refusal))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(one, str) and "runs already" in one for one in outcomes) == [False, True]
    (found,) = (one for one in outcomes if not isinstance(one, str))
    assert isinstance(found, Result)
    assert sum(row["n"] for row in found["counts"].to_pylist()) == 200


def test_who_resumes_takes_over_from_one_that_does_nothing_any_more(home: Path) -> None:
    path = job_path("numbers")
    path.mkdir(parents=True)
    frozen = Claim(path)
    later = Claim(path)
    assert (frozen.is_mine, later.is_mine) == (True, False)
    with pytest.raises(seep.Misuse, match="has nothing to resume"):  # not that it runs
        seep.start(numbers(), resume=True)
    for claim in (frozen, later, later):
        claim.release()
    last = Claim(path)
    assert last.is_mine
    last.release()


def test_where_a_file_system_has_no_locks_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unable)
    claim = claimed(tmp_path, "numbers", False)
    assert claim.is_mine
    claim.release()
