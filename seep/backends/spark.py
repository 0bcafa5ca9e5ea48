"""Workers on Spark executors: a slot is a one-task job that stays until its worker ends.

Spark gives the place and nothing else: no row passes through it, and its retry of a task is never ours (a task that
came back would be a new, empty worker under an old name, so tasks are not retried). Each slot has a thread here that
waits for its job; when the job returns, the worker has ended. Executors fork workers from a warm daemon
(`sparkdaemon`). Executors must run on this host: workers meet in the job directory.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seep.backends.process import ENVIRONMENT, Process
from seep.runtime.job import JobDirectory

GOODBYE_SECONDS = 10.0
EMBEDDED = "local-cluster[3,2,900]"
"""Real executors without a cluster: three, with two slots each."""

SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "false",
    "spark.python.daemon.module": "seep.backends.sparkdaemon",
    # Without this the tenth killed executor ends the application.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SparkBackend:
    def __init__(self, job: JobDirectory, master: str | None = None, context: Any = None) -> None:
        self._job = job
        self._master = master or EMBEDDED
        self._context = context
        self._own_context = context is None
        self._context_lock = threading.Lock()
        self._lock = threading.Lock()
        self._slots: dict[str, threading.Thread] = {}
        self._doomed: set[str] = set()
        """Released before they ran."""
        self._ended: list[str] = []
        self._broken: Exception | None = None
        """Why there is no Spark."""

    def want(self, count: int) -> None:
        with self._lock:
            if self._broken is not None:
                return
            for _ in range(count - len(self._slots)):
                worker = f"s{secrets.token_hex(4)}"
                thread = threading.Thread(target=self._hold, args=(worker,), name=f"seep-slot-{worker}", daemon=True)
                self._slots[worker] = thread
                thread.start()

    def release(self, worker: str) -> None:
        self._signal(worker, signal.SIGTERM)

    def kill(self, worker: str) -> None:
        self._signal(worker, signal.SIGKILL)

    def events(self) -> list[str]:
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def workers(self) -> list[str]:
        with self._lock:
            return list(self._slots)

    def problem(self) -> str:
        if self._broken is None:
            return ""
        return f"Spark cannot be started: {type(self._broken).__name__}: {str(self._broken).partition(chr(10))[0]}"

    def close(self) -> None:
        deadline = time.monotonic() + GOODBYE_SECONDS
        for worker in self.workers():
            self.release(worker)
        while self.workers() and time.monotonic() < deadline:
            time.sleep(0.01)
        for worker in self.workers():
            self.kill(worker)
        self.detach()

    def detach(self) -> None:
        """An application of our own ends here, and its executors with it; a context that was given goes on."""
        with self._context_lock:
            if self._own_context and self._context is not None:
                self._context.stop()
                self._context = None

    def _hold(self, worker: str) -> None:
        """The driver's side of a slot: as long as the worker runs."""
        try:
            context = self._spark()
            if worker not in self._doomed:
                path = str(self._job.path)
                context.parallelize([worker], 1).mapPartitions(lambda ids: slot_main(path, ids)).collect()
        except Exception as error:
            # A killed worker fails its job: that is an ended slot like any other. Why is for the log.
            with self._job.log_path(worker).open("a") as log:
                log.write(f"{type(error).__name__}: {str(error)[:2000]}\n")
        finally:
            with self._lock:
                del self._slots[worker]
                self._ended.append(worker)
            self._job.unregister(worker)

    def _signal(self, worker: str, number: int) -> None:
        card = self._job.registered().get(worker)
        if card is None:
            self._doomed.add(worker)
        else:
            Process(card["process"], card["began"]).signal(number)

    def _spark(self) -> Any:
        with self._context_lock:
            if self._broken is not None:
                raise self._broken
            if self._context is None:
                try:
                    self._context = start_spark(self._master, self._job.path)
                except Exception as error:
                    self._broken = error
                    raise
            return self._context


def slot_main(path: str, workers: Iterable[str]) -> Iterator[str]:
    """The executor's side of a slot."""
    from seep.runtime.worker import run_worker

    for worker in workers:
        run_worker(path, worker)
        yield worker


def start_spark(master: str, job_path: Path) -> Any:
    """A SparkContext whose executors can be slots."""
    from pyspark import SparkConf, SparkContext

    # Set but empty it would send pyspark to a Spark in the root directory.
    if not os.environ.get("SPARK_HOME", "x"):
        del os.environ["SPARK_HOME"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    conf = SparkConf().setMaster(master).setAppName("seep")
    for name, value in SETTINGS.items():
        conf.set(name, value)
    for name, value in {**ENVIRONMENT, "PYTHONPATH": path, "SEEP_JOB": str(job_path)}.items():
        conf.setExecutorEnv(name, value)
    conf.set("spark.local.dir", str(job_path / "spark"))
    if embedded := re.fullmatch(r"local-cluster\[\d+,\d+,(\d+)\]", master.replace(" ", "")):
        # An executor asks for a gigabyte by default, which may be more than its embedded worker was given.
        conf.set("spark.executor.memory", f"{embedded[1]}m")
    return SparkContext(conf=conf)
