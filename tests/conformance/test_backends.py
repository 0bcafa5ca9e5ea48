"""One contract for every backend: kills and scaling never show, and nothing is left running.

One job for each backend, since Spark takes longer to start than everything that is done to it: its checks run in the
order in which they stand here, each sees that what was given out until then is exact, and the last one ends the job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

import seep
from tests.conformance.chains import assert_chained, chained
from tests.conformance.places import RATE, ROWS, Place, RealPlace, SimulatedPlace
from tests.scenarios.oracles import until

JAVA = shutil.which("java") is not None or "JAVA_HOME" in os.environ
ON_SPARK = [pytest.mark.server, pytest.mark.skipif(not JAVA, reason="no Java")]
ON_RAY = [pytest.mark.server, pytest.mark.skipif(find_spec("ray") is None, reason="no Ray")]

BACKENDS = [
    pytest.param("standalone", marks=[*ON_SPARK, pytest.mark.slow]),
    pytest.param("spark", marks=ON_SPARK),
    pytest.param("ray", marks=ON_RAY),
    pytest.param("local"),
    pytest.param("simulator"),
]
"""Those that can be broken in more ways come first: parameters are put in groups by their position. A
cluster with daemons of its own is in the quick tier as several hosts (`test_hosts.py`)."""

GATEWAY = "org.apache.spark.deploy.SparkSubmit"
"""The driver's Java process, which pyspark keeps for the next application."""

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pyspark leaves sockets to the collector
]


def over(backends: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", backends, indirect=True, scope="module")


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "simulator":
        yield SimulatedPlace(path)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEP_HOME", str(path / "home"))
        yield from _real(request.param, path)


def _real(backend: str, path: Path) -> Iterator[RealPlace]:
    flow = chained(backend, ROWS, RATE, path / "gate")
    cluster, options = None, {"on": backend, "workers": 2}
    if backend == "standalone":
        from tests.conformance.sparkcluster import SparkCluster

        cluster = SparkCluster(path, daemons=2, cores=3)
        options |= {"on": "spark", "master": cluster.master}
    elif backend == "spark":
        options |= {"master": "local-cluster[2,3,900]"}
    before = _children()
    try:
        job = seep.start(flow, **options)
        try:
            yield RealPlace(job, path / "gate")
        finally:
            job.close()
        until(lambda: _children() <= before, "all that was started to end")
    finally:
        if cluster is not None:
            cluster.close()


def _children() -> set[int]:
    """Processes that this one has started, or that they have."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and GATEWAY not in process.cmdline():
                found.add(process.pid)
    return found


@over(BACKENDS)
def test_a_worker_is_killed(place: Place) -> None:
    place.kill()
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS)
@pytest.mark.parametrize(("count", "victim"), [(3, "old"), (1, "new")])
def test_a_worker_is_killed_while_the_operator_is_scaled(place: Place, count: int, victim: str) -> None:
    place.scale_and_kill(count, victim)
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS[:2])
def test_an_executor_is_killed(place: RealPlace) -> None:
    place.kill_executor()
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS)
def test_the_operator_is_scaled_out_and_in(place: Place) -> None:
    for count in (4, 1):
        place.scale(count)
        place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS)
def test_a_worker_that_is_not_needed_ends(place: Place) -> None:
    place.one_too_many()
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS[1:3])
def test_a_plan_of_chaos(place: RealPlace) -> None:
    """Local processes have a longer one of their own (`tests/scenarios/test_chaos.py`)."""
    found = place.chaos("kill every 2s; pause 500ms every 3s; cut 300ms every 2s; scale random every 3s", 6.0)
    assert found.good, found
    assert found.done["kill"] >= 2
    assert found.done["cut"] >= 1
    assert found.compared > 100
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS[:1])
def test_the_daemon_of_an_executor_is_killed(place: RealPlace) -> None:
    place.kill_daemon()
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


@over(BACKENDS[:-1])
def test_it_listens_on_the_loopback_interface_only(place: RealPlace) -> None:
    addresses = {address.removeprefix("::ffff:") for address in place.addresses()}
    assert addresses
    assert addresses <= {"127.0.0.1", "::1"}


@over(BACKENDS)
def test_it_ends_exact_and_leaves_nothing_running(place: Place) -> None:
    place.advance()
    assert_chained(place.finish(), place.rows_maximum, ended=True)
