"""Workers on Spark executors: a slot is a one-task job that stays until its worker ends.

When the job returns, the worker has ended (`held`). Executors fork workers from a warm daemon (`sparkdaemon`). On this
host they are told where seep and the flow's modules lie; on others they import what is laid into the job's directory
(`shipping`). Spark's own configuration passes through, from wherever it comes; only what slots rest on is set on top.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from seep.backends.held import HeldSlots
from seep.backends.process import ENVIRONMENT
from seep.backends.shipping import ship
from seep.backends.slot import SHARED, UNFIT, run_task
from seep.backends.zygote import load_code
from seep.runtime.hosts import LOOPBACK, address_towards, is_loopback
from seep.runtime.job import JobDirectory

EMBEDDED = "local-cluster[3,2,900]"
"""Real executors without a cluster: three, with two slots each."""

NEEDED = {
    "spark.scheduler.mode": "FAIR",
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "false",
    "spark.python.daemon.module": "seep.backends.sparkdaemon",
    # Of jobs that never end; pyspark turns it on by itself.
    "spark.ui.showConsoleProgress": "false",
}
"""Slots rest on these, whatever anybody else has set."""
PREFERRED = {
    # Without this the tenth killed executor ends the application.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.ui.enabled": "false",
}
"""Set where nobody has set anything."""
UNNAMED = "pyspark-shell"
"""What pyspark calls an application that nobody has named."""


class SparkBackend(HeldSlots):
    """``master``: any that Spark accepts; ``context``: an application to take slots of, which is left running."""

    scheduler = "Spark"

    def __init__(self, job: JobDirectory, master: str | None = None, context: Any = None) -> None:
        self._master = str(context.master) if context is not None else master or submitted_master() or EMBEDDED
        self._given = context
        super().__init__(job, network_address(self._master))

    def _start(self) -> Any:
        if self._given is not None:
            return self._given
        session = start_spark(self._master, self._job)
        _tell_of_tasks(session, False)
        return session

    def _hold(self, session: Any, worker: str) -> str:
        # The task goes on until its process is killed: were its thread interrupted, the process would outlive it.
        session.setJobGroup(worker, f"seep: worker {worker}", interruptOnCancel=False)
        task = partial(run_task, self._errand)
        told: list[str] = session.parallelize([worker], 1).mapPartitions(task).collect()
        return told[0] if told else ""

    def _kill(self, session: Any, worker: str) -> None:
        # The executor's daemon kills the process of a cancelled task with SIGKILL, within seconds.
        session.cancelJobGroup(worker)

    def _reason(self, error: Exception) -> str:
        return unfit_executor(str(error), self._errand.path)

    def _lives(self, session: Any) -> bool:
        try:
            return not session._jsc.sc().isStopped()
        except Exception:  # its Java process does not answer, or it was stopped on this side
            return False

    def _break_off(self) -> None:
        """It ends with its Java process; one of spark-submit's is not ours, and ends with this one."""
        if self._given is None and (process := _java_process()) is not None:
            process.terminate()

    def _stop(self, session: Any) -> None:
        """An application of our own ends here, and its executors with it; a context that was given goes on, without the
        tasks that wait for an executor: there would be one some day, and then a worker of a flow that is gone."""
        if self._given is None:
            with contextlib.suppress(Exception):  # its Java process may have ended
                session.stop()
                _tell_of_tasks(session, True)
            return
        if not self._lives(session):
            return
        for worker in set(self.workers()) - self._running():
            session.cancelJobGroup(worker)


def network_address(master: str) -> str:
    """Where executors on other hosts find this one; empty: this master has none.

    >>> network_address("local-cluster[3,2,900]"), network_address("spark://127.0.0.1:7077")
    ('', '')
    """
    if master.startswith("local"):
        return ""
    told = os.environ.get("SPARK_LOCAL_IP", "")
    if told:
        return "" if is_loopback(told) else told
    host = re.match(r"(?:spark|k8s)://(?:https?://)?(\[[^]]+\]|[^:/,]+)", master)
    address = address_towards(host[1].strip("[]") if host else "")
    return "" if is_loopback(address) else address


def submitted_master() -> str:
    """The master that spark-submit was given, if it has started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return ""
    return str(_configuration().get("spark.master", ""))


def _configuration() -> Any:
    """What is configured already: by spark-submit, SPARK_CONF_DIR, PYSPARK_SUBMIT_ARGS. Spark's Java part reads it."""
    from pyspark import SparkConf, SparkContext

    # Set but empty it would send pyspark to a Spark in the root directory.
    if not os.environ.get("SPARK_HOME", "x"):
        del os.environ["SPARK_HOME"]
    if (process := _java_process()) is not None and process.poll() is not None:
        # That of an application before, which was killed: pyspark would ask it for ever.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkContext._ensure_initialized()
    return SparkConf()


def _java_process() -> Any:
    """Of Spark, if pyspark has started one in this process; it keeps it for the next application."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _tell_of_tasks(context: Any, wanted: bool) -> None:
    """Spark prints a stack for each task that fails. Ours are slots: they do with each worker that is killed."""
    log4j = context._jvm.org.apache.logging.log4j
    level = log4j.Level.WARN if wanted else log4j.Level.OFF
    log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.TaskSetManager", level)


def start_spark(master: str, job: JobDirectory) -> Any:
    """A SparkContext whose executors can be slots."""
    from pyspark import SparkContext

    address = job.network_address
    given = os.environ.get("PYSPARK_PYTHON") if address else None
    # Executors, and what an embedded cluster listens at besides, would take any address of the network.
    with _environment(SPARK_LOCAL_IP=os.environ.get("SPARK_LOCAL_IP") or address or LOOPBACK):
        conf = _configuration()
        for name, value in NEEDED.items():
            conf.set(name, value)
        for name, value in {**PREFERRED, **_places(master, job.path, address)}.items():
            conf.setIfMissing(name, value)
        for name, value in {**ENVIRONMENT, "PYTHONPATH": _path(job, conf), "SEEP_JOB": str(job.path)}.items():
            conf.setExecutorEnv(name, value)
        if conf.get("spark.app.name", UNNAMED) == UNNAMED:
            conf.setAppName("seep")
        # Other hosts may have theirs elsewhere: who set it knows.
        python = given or (conf.get("spark.pyspark.python", "") if address else "") or sys.executable
        with _environment(PYSPARK_PYTHON=python):
            return SparkContext(conf=conf.setMaster(master))


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """What Spark reads as it starts, and another one that is started later must not find."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _places(master: str, job_path: Path, address: str) -> dict[str, str]:
    here = dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), address or LOOPBACK)
    if address:
        return here
    here["spark.local.dir"] = str(job_path / "spark")
    if embedded := re.fullmatch(r"local-cluster\[\d+,\d+,(\d+)\]", master.replace(" ", "")):
        # An executor asks for a gigabyte by default, which may be more than its embedded worker was given.
        here["spark.executor.memory"] = f"{embedded[1]}m"
    return here


def _path(job: JobDirectory, conf: Any) -> str:
    """Where executors import from. This host's own folders may hold something else on another one, or nothing."""
    if job.network_address:
        load_code(job)
        entries = [str(ship(job.path))]
    else:
        entries = [entry or os.getcwd() for entry in sys.path]
    given = conf.get("spark.executorEnv.PYTHONPATH", "")
    return os.pathsep.join([*entries, given] if given else entries)


def unfit_executor(said: str, job_path: str) -> str:
    """Of a task that failed: what is wrong with its executor's host; empty: nothing that the next one would meet, too.

    >>> unfit_executor("Lost task 0.0 (TID 0) (10.0.0.7 executor 1): x\\nError from python worker: y", "/j")
    'unfit: host 10.0.0.7 cannot start a Python worker: y'
    """
    found = re.search(r"\(TID \d+\) \((\S+) executor", said)
    host = f"host {found[1]}" if found else "a host"
    if versions := re.search(r"\[PYTHON_VERSION_MISMATCH\][^:]*: ([\d.]+)[^:]*: ([\d.]+)", said):
        advice = "set PYSPARK_PYTHON to the same version"
        return f"{UNFIT}{host} has Python {versions[1]}, the driver Python {versions[2]}; {advice}"
    if re.search(r"No module named '?seep", said):
        return f"{UNFIT}{host} cannot reach the job's directory {job_path}, where seep would be; {SHARED}"
    if failed := re.search(r"Error from python worker:\s*(\S.*)", said):
        return f"{UNFIT}{host} cannot start a Python worker: {failed[1]}"
    if missing := re.search(r'Cannot run program "([^"]+)"', said):
        return f"{UNFIT}{host} has no Python at {missing[1]}; set PYSPARK_PYTHON to one that it has"
    return ""
