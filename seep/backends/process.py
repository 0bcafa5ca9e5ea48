"""A worker's process on this machine: named for good, looked at and signalled."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

from seep.runtime.job import JobDirectory, process_began

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MIMALLOC_PURGE_DELAY": "2000",
}
"""One processing thread to a slot, and the same iteration order in every process. Arrow keeps memory for two seconds
before it gives it back: the next epoch wants as much again, and fresh pages took a third of a join's time."""
ENDING_SECONDS = 5.0


class Process(NamedTuple):
    number: int
    began: int

    def alive(self) -> bool:
        return self.began != 0 and process_began(self.number) == self.began

    def signal(self, signal_number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal_number)


def end_workers(job: JobDirectory) -> None:
    """Kill those that an earlier controller of this job has left running, and wait until they are gone."""
    left = {worker: Process(card["process"], card["began"]) for worker, card in job.registered().items()}
    for process in left.values():
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + ENDING_SECONDS
    while any(process.alive() for process in left.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for worker in left:
        job.unregister(worker)
