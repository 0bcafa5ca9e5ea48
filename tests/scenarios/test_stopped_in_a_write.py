"""A worker is stopped (SIGSTOP) while it holds a lock of the store: who takes over must not wait for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seep.backends.local import LocalBackend
from seep.model.ids import PartitionId
from tests.scenarios.oracles import process_of, send_signal
from tests.scenarios.toy import Count, Job

NUMBERS = PartitionId("numbers", 0)
TRIES = 5_000


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path / "job", 60_000, LocalBackend, Count, suspect_ms=800.0)
    yield made
    made.host.abandon()
    made.host.wait(10)
    LocalBackend(made.directory).close()


def holds(process: int, lock: Path) -> bool:
    """By what the system says of locks: KIND MODE ACCESS PID DEVICE:INODE ..."""
    inode = str(os.stat(lock).st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
    return any(line[1] == "FLOCK" and line[4] == str(process) and line[5].endswith(f":{inode}") for line in lines)


def stopped_inside(process: int, lock: Path) -> None:
    for _ in range(TRIES):
        send_signal(process, signal.SIGSTOP)
        time.sleep(0.002)
        if holds(process, lock):
            return
        send_signal(process, signal.SIGCONT)
        time.sleep(0.001)
    pytest.skip("it was never found inside a write")


@pytest.mark.timeout(90)
def test_others_do_not_wait_for_one_that_is_stopped_inside_a_write(job: Job) -> None:
    job.until(lambda: NUMBERS in job.host.view.journal.entries and job.epoch("numbers") > 0)
    entry = job.host.view.journal.entries[NUMBERS]
    process = process_of(job.directory, entry.worker)
    lock = job.directory.path / "store" / "partitions" / "numbers~0" / "lock"
    stopped_inside(process, lock)
    until: Callable[[], bool] = lambda: job.host.view.journal.entries[NUMBERS].generation != entry.generation  # noqa: E731
    job.until(until)
    assert job.host.wait(30), job.host.view.decisions
    assert (job.host.outcome, job.host.report) == ("finished", "")
    job.assert_exact()
