"""User code that is inside one epoch for longer than a worker may be silent: it is waited for; a stopped one is not."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from seep.backends.local import LocalBackend
from seep.cli.jobs import _status_lines
from seep.model.batch import Batch
from seep.model.epoch import Moment
from seep.model.ids import PartitionId
from seep.runtime.control import HostControl
from seep.runtime.readers import Scraper
from seep.runtime.watch import Watch
from tests.scenarios.oracles import process_of, send_signal
from tests.scenarios.toy import Count, Job

SUSPECT_MS = 800.0
SLOW_SECONDS = 2.5
SLOW_EPOCH = 20
COUNT = PartitionId("count", 0)


class Slow(Count):
    """Computes for seconds in one epoch, each time that it takes it."""

    def take(self, moment: Moment, inputs: Sequence[tuple[int, Batch]]) -> Mapping[str, Batch]:
        until = time.monotonic() + (SLOW_SECONDS if moment.epoch == SLOW_EPOCH else 0.0)
        while time.monotonic() < until:
            sum(range(1_000))
        return super().take(moment, inputs)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Job]]:
    jobs: list[Job] = []

    def make() -> Job:
        jobs.append(Job(tmp_path / "job", 12_000, LocalBackend, Slow, suspect_ms=SUSPECT_MS))
        return jobs[-1]

    yield make
    for job in jobs:
        job.host.abandon()
        job.host.wait(10)
        LocalBackend(job.directory).close()


def silent(job: Job) -> list[str]:
    return [what for _, what in job.host.view.decisions if "silent" in what]


@pytest.mark.timeout(60)
def test_a_worker_that_computes_for_long_is_waited_for(start: Callable[[], Job]) -> None:
    job = start()
    job.until(lambda: COUNT in job.host.view.journal.entries and job.epoch("count") > 0)
    generation = job.host.view.journal.entries[COUNT].generation
    job.until(lambda: COUNT in job.host.view.busy and job.host.view.busy[COUNT].busy_ms > 1_500)
    watch = Watch(job.host, Scraper(dict))
    lines = _status_lines(HostControl("slow", job.host, watch).status())
    watch.close()
    assert next(line for line in lines if "count/0" in line).endswith("busy with one epoch for 2 s")
    assert job.host.wait(30)
    assert (job.host.outcome, job.host.report) == ("finished", "")
    assert silent(job) == []
    assert job.host.view.journal.entries[COUNT].generation == generation
    assert any("the epoch after 19 of count/0 goes on for 0." in what for _, what in job.host.view.decisions)
    job.assert_exact()


@pytest.mark.timeout(60)
def test_a_worker_stopped_inside_a_long_epoch_is_found_by_its_silence(start: Callable[[], Job]) -> None:
    job = start()
    job.until(lambda: COUNT in job.host.view.busy)
    worker = job.host.view.journal.entries[COUNT].worker
    process = process_of(job.directory, worker)
    send_signal(process, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        job.until(lambda: worker not in job.host.view.workers)
        assert time.monotonic() - stopped < 2 * SUSPECT_MS / 1000
        assert silent(job) == [f"worker {worker} silent for 800 ms, inside the epoch after 19 of count/0"]
    finally:
        send_signal(process, signal.SIGCONT)
    assert job.host.wait(30)
    assert (job.host.outcome, job.host.report) == ("finished", "")
    job.assert_exact()
