"""The far side of a slot, on whatever host and Python a scheduler has put it.

Nothing but the standard library is needed until this host is known to be fit, so one that is not can say why, in a line
that names it: `UNFIT` and the reason. What a worker fails with later is no property of its host.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from seep.runtime.hosts import LOOPBACK, address_towards

UNFIT = "unfit: "


class Errand(NamedTuple):
    """What the driver gives a slot to go by; nothing in it is secret."""

    path: str
    """The job's directory."""
    stamp: str
    """What stands in its file `stamp`: there may be another directory at that path."""
    python: tuple[int, int]
    """Code goes from one Python to another only if they are of one version."""
    driver: str = ""
    """The address of the driver's host; empty: it is this one."""


def run_slot(errand: Errand, worker: str) -> str:
    """Run a worker to its end; empty, or what it failed with."""
    if why := unfit(errand):
        return why
    try:
        from seep.runtime.job import JobDirectory
        from seep.runtime.worker import run_worker

        run_worker(errand.path, worker)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        return f"{UNFIT}{_here(errand)} has no Python module {missing!r}; install it for {sys.executable}"
    except Exception as error:
        with JobDirectory(errand.path).log_path(worker).open("a") as log:
            traceback.print_exc(file=log)
        return f"{type(error).__name__}: {error}"
    return ""


def run_task(errand: Errand, workers: Iterable[str]) -> Iterator[str]:
    """A slot of Spark: a task that stays."""
    from pyspark import TaskContext

    task = TaskContext.get()
    # Spark tries again by itself what was lost with a whole machine, limit or not: that slot is given back at once.
    if task is None or task.attemptNumber() == 0:
        for worker in workers:
            yield run_slot(errand, worker)


class Slot:
    """A slot of Ray: an actor."""

    def run(self, errand: Errand, worker: str) -> str:
        return run_slot(errand, worker)


def unfit(errand: Errand) -> str:
    """Why this host cannot run a worker; empty: it can try."""
    host, mine = _here(errand), sys.version_info[:2]
    if mine != errand.python:
        versions = f"Python {mine[0]}.{mine[1]}, the driver Python {errand.python[0]}.{errand.python[1]}"
        return f"{UNFIT}{host} has {versions}; set PYSPARK_PYTHON to the same version"
    try:
        stamp = Path(errand.path, "stamp").read_text()
    except OSError as error:
        return f"{UNFIT}{host} cannot reach the job's directory {errand.path} ({error.strerror}); {SHARED}"
    if stamp != errand.stamp:
        return f"{UNFIT}{host} sees another directory at {errand.path}; {SHARED}"
    if not os.access(errand.path, os.R_OK | os.W_OK | os.X_OK):
        return f"{UNFIT}{host} may not write to the job's directory {errand.path}; run it as the same user"
    return ""


SHARED = "SEEP_HOME must be on a file system that all hosts share"


def _here(errand: Errand) -> str:
    return f"host {socket.gethostname()} ({address_towards(errand.driver or LOOPBACK)})"
