"""Spark as somebody else has configured it: with dynamic allocation, an event log, and a name of their own.

More slots make Spark add executors, idle ones are given back, none with a partition; and the job key shows nowhere.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import seep
from tests.conformance.chains import assert_chained, chained
from tests.conformance.places import RATE, ROWS, RealPlace
from tests.scenarios.oracles import until

JAVA = shutil.which("java") is not None or "JAVA_HOME" in os.environ
DEFAULTS = {
    "spark.app.name": "prices of our own",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.eventLog.enabled": "true",
    "spark.speculation": "true",
}
"""The last one would run a slot twice: seep has to override it."""

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # a minute, for what is Spark's own doing mostly
    pytest.mark.skipif(not JAVA, reason="no Java"),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pyspark leaves sockets to the collector
]


def end_gateway() -> None:
    """Spark's Java part reads its configuration when it starts: let the next application start another one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlace]:
    from tests.conformance.sparkcluster import SparkCluster

    path: Path = tmp_path_factory.mktemp("allocation")
    (path / "events").mkdir()
    (path / "conf").mkdir()
    defaults = {**DEFAULTS, "spark.eventLog.dir": f"file:{path}/events"}
    (path / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in defaults.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEP_HOME", str(path / "home"))
        patch.setenv("SPARK_CONF_DIR", str(path / "conf"))
        end_gateway()
        cluster = SparkCluster(path, daemons=2, cores=2)
        try:
            flow = chained("allocation", ROWS, RATE, path / "gate")
            job = seep.start(flow, on="spark", master=cluster.master, workers=1)
            try:
                yield RealPlace(job, path / "gate")
            finally:
                job.close()
        finally:
            cluster.close()
            end_gateway()


def session(place: RealPlace) -> Any:
    return place.job.host.backend._session  # type: ignore[attr-defined]


def executors(place: RealPlace) -> int:
    """Besides the driver."""
    return int(session(place)._jsc.sc().getExecutorMemoryStatus().size()) - 1


def test_more_slots_bring_executors_and_idle_ones_go(place: RealPlace) -> None:
    few = executors(place)
    place.job.scale("count", 3)
    until(lambda: executors(place) > few, "another executor")
    place.advance()
    place.job.scale("count", 1)
    many = executors(place)
    until(lambda: executors(place) < many, "an executor to be given back", 60.0)
    place.advance()
    assert [said for _, said in place.job.host.view.decisions if "lost" in said or "restarts" in said] == []
    assert_chained(place.given(), place.rows_maximum)


def test_what_the_user_has_set_stays_unless_slots_rest_on_it(place: RealPlace) -> None:
    conf = session(place).getConf()
    assert conf.get("spark.app.name") == "prices of our own"
    assert conf.get("spark.executor.cores") == "1"
    assert conf.get("spark.speculation") == "false"
    assert conf.get("spark.task.maxFailures") == "1"


def test_the_job_key_shows_nowhere(place: RealPlace) -> None:
    key = place.job.directory.key
    forms = [key, key.hex().encode(), base64.b64encode(key), repr(key)[2:-1].encode()]
    settings = "\n".join(f"{name}={value}" for name, value in session(place).getConf().getAll()).encode()
    shown = {"the configuration": settings}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for name in ("cmdline", "environ"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                shown[f"{name} of {process.pid}"] = Path(f"/proc/{process.pid}/{name}").read_bytes()
    home = place.gate.parent
    kept = place.job.directory.path / "key"
    for file in home.rglob("*"):
        if file.is_file() and file != kept:
            shown[str(file)] = file.read_bytes()
    assert any("/events/" in name for name in shown)
    assert any("work" in Path(name).parts or name.endswith("stderr") for name in shown)
    assert [name for name, data in shown.items() if any(form in data for form in forms)] == []


def test_it_ends_exact(place: RealPlace) -> None:
    assert_chained(place.finish(), place.rows_maximum, ended=True)
