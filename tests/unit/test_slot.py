"""A host that cannot run a worker says why, in one line that names it; Spark says it for one that cannot speak."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seep.backends.slot import UNFIT, Errand, run_slot
from seep.backends.spark import network_address, unfit_executor

PYTHON = sys.version_info[:2]


@pytest.fixture
def errand(tmp_path: Path) -> Errand:
    (tmp_path / "stamp").write_text("s1")
    return Errand(str(tmp_path), "s1", PYTHON)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"python": (3, 9)}, "the driver Python 3.9"),
        ({"path": "/nowhere/of/ours"}, "cannot reach the job's directory /nowhere/of/ours (No such file or directory)"),
        ({"stamp": "s2"}, "sees another directory at "),
    ],
)
def test_an_unfit_host(errand: Errand, change: dict[str, object], says: str) -> None:
    said = run_slot(errand._replace(**change), "w1")
    assert said.startswith(f"{UNFIT}host {socket.gethostname()} (")
    assert says in said
    assert "\n" not in said


def test_a_host_without_a_module(errand: Errand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seep.runtime.worker", None)
    assert "has no Python module 'seep'; install it for " in run_slot(errand, "w1")


def test_nothing_but_the_standard_library_is_needed_to_say_so() -> None:
    code = "import sys, seep.backends.slot; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numba", "numpy", "pyarrow", "msgpack", "cloudpickle", "cryptography"} & set(done.stdout.split())


LOST = "Job aborted: Lost task 0.0 in stage 3.0 (TID 3) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (
            LOST
            + "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: No module named x",
            "host 10.0.0.7 cannot start a Python worker: /usr/bin/python3: No module named x",
        ),
        (
            LOST + "SparkException: \nError from python worker:\n  python3: x (No module named 'seep')",
            "host 10.0.0.7 cannot reach the job's directory /job, where seep would be; SEEP_HOME must be on",
        ),
        (
            LOST + "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11",
            "host 10.0.0.7 has Python 3.10, the driver Python 3.11; set PYSPARK_PYTHON",
        ),
        (
            LOST + 'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2, No such file or directory',
            "host 10.0.0.7 has no Python at /opt/venv/bin/python; set PYSPARK_PYTHON",
        ),
        (LOST + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", ""),
    ],
)
def test_what_spark_says_of_an_executor(said: str, means: str) -> None:
    found = unfit_executor(said, "/job")
    assert found.startswith(f"{UNFIT}{means}" if means else "")
    assert bool(found) == bool(means)


@pytest.mark.parametrize("master", ["local-cluster[2,1,900]", "local[2]", "spark://127.0.0.1:7077,127.0.0.1:7078"])
def test_masters_of_this_host(master: str) -> None:
    assert network_address(master) == ""


def test_the_address_is_the_one_that_spark_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "198.18.0.1")
    assert network_address("yarn") == "198.18.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert network_address("spark://198.18.0.2:7077") == ""
