"""Workers on several hosts: network namespaces, each with a daemon of a Spark cluster, none with seep installed.

As in `test_backends.py` the checks run in the order in which they stand here, each sees that what was given out until
then is exact, and the last one ends the job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numba
import psutil
import pytest

import seep
from seep.backends import held
from seep.backends.slot import UNFIT
from tests.conformance.chains import assert_chained, chained
from tests.conformance.hosts import Hosts, possible
from tests.conformance.places import RATE, ROWS, RealPlace
from tests.conformance.sparkcluster import SparkCluster
from tests.scenarios.oracles import epoch_of, until

JAVA = shutil.which("java") is not None or "JAVA_HOME" in os.environ
SOURCES = Path(seep.__file__).parents[1]

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not JAVA, reason="no Java"),
    pytest.mark.skipif(not possible(), reason="no network namespaces: not root, or no iproute2"),
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pyspark leaves sockets to the collector
]


HIDDEN = [SOURCES / "seep", SOURCES / "operators", SOURCES / "tests"]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two for the flow, a third that comes later."""
    hosts = Hosts(3)
    yield hosts
    hosts.close()


@pytest.fixture(scope="module")
def cluster(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"), 2, 3, hosts, HIDDEN)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def place(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlace]:
    path: Path = tmp_path_factory.mktemp("hosts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEP_HOME", str(path / "home"))
        flow = chained("hosts", ROWS, RATE, path / "gate")
        job = seep.start(flow, on="spark", master=cluster.master, workers=3)
        try:
            yield RealPlace(job, path / "gate")
        finally:
            job.close()


def own_home(cluster: SparkCluster) -> Path:
    """A folder that the third host does not share."""
    home = cluster.path / "home"
    home.mkdir(exist_ok=True)
    return home


def addresses(place: RealPlace) -> dict[str, str]:
    return {worker: card["address"] for worker, card in place.job.directory.registered().items()}


def process(place: RealPlace, worker: str) -> psutil.Process:
    """The namespaces share process ids, so what seep must not do (signal it) the test can (look at it)."""
    return psutil.Process(place.job.directory.registered()[worker]["process"])


def test_they_run_on_both_hosts_and_serve_their_metrics(place: RealPlace, hosts: Hosts) -> None:
    both = set(hosts.addresses[:2])
    until(lambda: set(addresses(place).values()) == both, "workers on both hosts")
    targets = place.job.targets()[0]["targets"]
    assert {target.rpartition(":")[0] for target in targets} == {*both, hosts.address}
    for target in targets:
        with urlopen(f"http://{target}/metrics", timeout=5) as answer:
            assert b"seep_" in answer.read()
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


def test_they_import_what_was_shipped_and_compile_nothing(place: RealPlace) -> None:
    library = place.job.directory.path / "lib"
    worker = place.job.journal.live("count")[0].worker
    opened = {mapped.path for mapped in process(place, worker).memory_maps()}
    assert not [path for path in opened if path.startswith(str(SOURCES / "seep"))]
    shipped = {(str(path.relative_to(library)), path.stat().st_mtime_ns) for path in library.rglob("*.nbc")}
    assert shipped
    assert shipped <= {(str(path.relative_to(SOURCES)), path.stat().st_mtime_ns) for path in SOURCES.rglob("*.nbc")}


def test_one_is_killed(place: RealPlace) -> None:
    worker = place.job.journal.live("count")[0].worker
    victim = process(place, worker)
    place.job.kill("count", 0)
    place._gone(worker)
    assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
    place.advance()
    assert_chained(place.given(), place.rows_maximum)


def test_one_that_is_not_needed_ends(place: RealPlace) -> None:
    place.job.scale("count", 3)
    place.job.scale("count", 1)
    backend = place.job.host.backend
    before = addresses(place).keys()
    backend.want(len(backend.workers()) + 1)
    until(lambda: addresses(place).keys() - before, "another one to run")
    crowd = addresses(place).keys()
    until(lambda: crowd - addresses(place).keys(), "one to be released")
    place.advance()


def test_a_host_is_cut_off(place: RealPlace, hosts: Hosts) -> None:
    worker = place.job.journal.live("count")[0].worker
    host = hosts.addresses.index(addresses(place)[worker])
    hosts.cut(host)
    place._gone(worker)
    until(lambda: place.job.journal.live("count")[0].worker != worker, "another one to take over")
    place.advance()
    hosts.mend(host)
    epoch = epoch_of(place.job, "counts")
    until(lambda: epoch_of(place.job, "counts") > epoch + 50, "the flow to go on", 60.0)
    assert_chained(place.given(), place.rows_maximum)


@pytest.mark.slow
def test_a_host_without_numba_joins_and_is_left_out(
    place: RealPlace, hosts: Hosts, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "STARTING_SECONDS", 0.0)
    cluster.join(8, hosts, 2, [*HIDDEN, Path(numba.__file__).parent, own_home(cluster)])
    logs, backend = place.job.directory.path / "workers", place.job.host.backend

    def said() -> list[str]:
        backend.want(len(addresses(place)) + 4)  # more than fit on the others
        lines = [line for log in logs.glob("*.log") for line in log.read_text().splitlines()]
        return [line for line in lines if line.startswith(UNFIT)]

    until(said, "the host to be tried", 60.0)
    assert f"host {hosts.names[2]} ({hosts.addresses[2]}) has no Python module 'numba'" in said()[0]
    place.advance()
    assert_chained(place.given(), place.rows_maximum)
    assert backend.problem() == ""


def test_it_ends_exact(place: RealPlace) -> None:
    place.gate.touch()
    rows = place.job.wait(60)["counts"].to_pylist()
    assert_chained(rows, ROWS, ended=True)
    assert place.job.directory.registered() == {}


@pytest.mark.slow
def test_a_flow_is_refused_where_a_host_does_not_reach_its_directory(
    cluster: SparkCluster, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(own_home(cluster)))
    flow = chained("refused", ROWS, RATE, cluster.path / "gate")
    job = seep.start(flow, on="spark", master=cluster.master, workers=8)  # more than fit on the others
    with pytest.raises(seep.Misuse) as refused:
        job.wait(120)
    where = own_home(cluster) / "refused"
    assert f"host {hosts.addresses[2]} cannot reach the job's directory {where}" in str(refused.value)
    assert "\n" not in str(refused.value)
