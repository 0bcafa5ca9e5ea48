"""Workers on Spark executors: a slot is a one-task job that stays until its worker ends.

When the job returns, the worker has ended (`held`). Executors fork workers from a warm daemon (`sparkdaemon`). They run
on this host, whoever their master is, and are told where seep and the flow's modules lie; nothing is shipped to them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seep.backends.held import HeldSlots, run_slot
from seep.backends.process import ENVIRONMENT
from seep.runtime.job import JobDirectory

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


class SparkBackend(HeldSlots):
    """``master``: any that Spark accepts; ``context``: an application to take slots of, which is left running."""

    scheduler = "Spark"

    def __init__(self, job: JobDirectory, master: str | None = None, context: Any = None) -> None:
        super().__init__(job)
        self._master = master or EMBEDDED
        self._given = context

    def _start(self) -> Any:
        return self._given or start_spark(self._master, self._job.path)

    def _hold(self, session: Any, worker: str) -> str:
        path = str(self._job.path)
        told: list[str] = session.parallelize([worker], 1).mapPartitions(lambda ids: slot_main(path, ids)).collect()
        return told[0] if told else ""

    def _lives(self, session: Any) -> bool:
        try:
            return not session._jsc.sc().isStopped()
        except Exception:  # its Java process does not answer, or it was stopped on this side
            return False

    def _stop(self, session: Any) -> None:
        """An application of our own ends here, and its executors with it; a context that was given goes on."""
        if self._given is None and self._lives(session):
            session.stop()


def slot_main(path: str, workers: Iterable[str]) -> Iterator[str]:
    """The executor's side of a slot."""
    from pyspark import TaskContext

    task = TaskContext.get()
    # Spark tries again by itself what was lost with a whole machine, limit or not: that slot is given back at once.
    if task is None or task.attemptNumber() == 0:
        for worker in workers:
            yield run_slot(path, worker)


def start_spark(master: str, job_path: Path) -> Any:
    """A SparkContext whose executors can be slots."""
    from pyspark import SparkConf, SparkContext

    # Set but empty it would send pyspark to a Spark in the root directory.
    if not os.environ.get("SPARK_HOME", "x"):
        del os.environ["SPARK_HOME"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Executors, and what an embedded cluster listens at besides, would take the address of the network.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
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
