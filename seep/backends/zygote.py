"""A process that has everything imported and compiled, and forks workers from itself.

A fresh Python needs seconds to import Arrow, Polars and the compiled kernels; a fork of a warm one is at work in tens
of milliseconds, and all workers share the memory of what was loaded. It reads worker ids from a socket, one to a
line, and answers each with ``id process``. It runs one thread, since only then is a fork safe; when the flow's code
starts threads on import, workers are started afresh instead. It ends when its socket closes; its workers do not.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa

from seep.model.arrow import ArrowBatch
from seep.runtime.job import JobDirectory
from seep.runtime.worker import run_worker

HARMLESS = {"jemalloc_bg_thd", "polars-ooc-clea"}
"""Threads that come with importing Arrow and Polars: the allocator restarts its own after a fork, the other sleeps
until the first query that spills, of which a zygote runs none."""


def warm_up(job: JobDirectory) -> None:
    """Load what a worker will call."""
    load_code(job)
    # What is loaded stays: a collection that walked over it would copy its pages into every worker.
    gc.collect()
    gc.freeze()


def load_code(job: JobDirectory) -> None:
    """The compiled loops (compiled now, if they never were), the flow's code and all it imports."""
    batch = ArrowBatch(pa.record_batch({"number": [1, 2], "text": ["a", "b"]}), np.zeros(2, dtype=np.uint16))
    batch.digest()
    graph, _ = job.code()
    for node in graph.nodes.values():
        warm = getattr(node.make, "warm", None)
        if warm is not None:
            warm()


def may_fork() -> bool:
    """Is there no thread that could hold a lock which a fork would never see released?"""
    tasks = Path("/proc/self/task")
    others = {(tasks / task / "comm").read_text().strip() for task in os.listdir(tasks) if int(task) != os.getpid()}
    return others <= HARMLESS


def serve(job: JobDirectory, control: socket.socket) -> None:
    # Ended children vanish without being waited for: who watches them looks at the process itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in control.makefile("r"):
        worker = line.strip()
        process = _fork(job, worker, control) if may_fork() else _spawn(job, worker)
        control.sendall(f"{worker} {process}\n".encode())


def _fork(job: JobDirectory, worker: str, control: socket.socket) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        # Not `close`, which leaves it open while it is read from: were it open here, nobody would see the zygote's end.
        os.close(control.detach())
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(job.log_path(worker), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        run_worker(job.path, worker)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not `sys.exit`: the parent's own clean-up is not the child's to run.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _spawn(job: JobDirectory, worker: str) -> int:
    with job.log_path(worker).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "seep.runtime.worker"],
            env={**os.environ, "SEEP_WORKER": worker},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).pid


def main() -> None:
    job = JobDirectory(os.environ["SEEP_JOB"])
    with socket.socket(fileno=int(os.environ["SEEP_CONTROL"])) as control:
        warm_up(job)
        serve(job, control)


if __name__ == "__main__":
    main()
