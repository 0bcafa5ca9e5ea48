"""What a scheduler lacks is said in one line, before anything of an earlier job is touched."""

from __future__ import annotations

import re
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seep
from seep.backends.needs import MASTERS, need_spark
from seep.cli.main import main
from seep.flow.compile import compile_flow
from seep.runtime.job import JobDirectory

APP = """
import seep
flow = seep.Flow("kept")
flow.source("rows", seep.MemorySource([{"a": 1}])).collect("out")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a job that ran before: what it kept must still be there afterwards."""
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    (tmp_path / "kept" / "store").mkdir(parents=True)
    return tmp_path


def start(on: str, master: str | None = None) -> None:
    flow = seep.Flow("kept")
    flow.source("rows", seep.MemorySource([{"a": 1}])).collect("out")
    seep.start(flow, on=on, master=master)


def java(path: Path, version: str) -> Path:
    program = path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(0o755)
    return path


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("on", "module", "says"),
    [
        ("ray", "ray", r"^Ray is not installed: pip install seep\[ray\]$"),
        ("spark", "pyspark", r"^Spark is not installed: pip install seep\[spark\]$"),
    ],
)
def test_a_missing_package(home: Path, monkeypatch: pytest.MonkeyPatch, on: str, module: str, says: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(seep.Misuse, match=says):
        start(on)
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("", "^Spark needs Java 17: there is none; "),
        ("11.0.2", "^Spark needs Java 17: .*/bin/java is of version 11.0.2; "),
        ("1.8.0_402", "^Spark needs Java 17: .*/bin/java is of version 1.8.0; "),
        ("?", "^Spark needs Java 17: .*/bin/java does not run; "),
    ],
)
def test_java(home: Path, monkeypatch: pytest.MonkeyPatch, version: str, says: str) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java(home, version) / "bin") if version else str(home))
    with pytest.raises(seep.Misuse, match=says):
        start("spark")
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize(("on", "form"), [("spark", "spark://127.0.0.1:{}"), ("ray", "127.0.0.1:{}")])
def test_a_master_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch, on: str, form: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    master = form.format(closed_port())
    with pytest.raises(seep.Misuse, match=f"{master} cannot be reached: .*refused"):
        start(on, master)
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize(("on", "master"), [("sprak", None), ("local", "spark://127.0.0.1:7077"), ("spark", "sprak")])
def test_a_wrong_place_is_refused_before_anything_is_removed(home: Path, on: str, master: str | None) -> None:
    with pytest.raises(seep.Misuse):
        start(on, master)
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize(("on", "form"), [("spark", "spark://{}"), ("ray", "{}"), ("ray", "ray://{}")])
def test_a_master_at_an_address_of_ipv6(home: Path, monkeypatch: pytest.MonkeyPatch, on: str, form: str) -> None:
    """Its brackets were looked up as part of a name: it could never be reached."""
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    asked: list[Any] = []

    def connect(address: Any, timeout: float) -> socket.socket:
        asked.append(address)
        raise OSError("nobody")

    monkeypatch.setattr("seep.backends.needs.socket.create_connection", connect)
    with pytest.raises(seep.Misuse, match=r"\[fd00::7\]:7077 cannot be reached: nobody"):
        start(on, form.format("[fd00::7]:7077"))
    assert asked == [("fd00::7", 7077)]


@pytest.mark.parametrize(
    ("jar", "says"),
    [
        ("", "has no Spark, and pyspark is "),
        ("spark-core_2.12-3.5.1.jar", "has Spark 3.5.1, and pyspark is "),
    ],
)
def test_another_spark_than_pysparks(home: Path, monkeypatch: pytest.MonkeyPatch, jar: str, says: str) -> None:
    """What the job before had kept was gone by the time it was found out."""
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    monkeypatch.setenv("SPARK_HOME", str(home))
    (home / "jars").mkdir()
    (home / "jars" / (jar or "else.jar")).touch()
    with pytest.raises(seep.Misuse, match=f"^SPARK_HOME={home} {says}.*; unset SPARK_HOME"):
        start("spark")
    assert (home / "kept" / "store").exists()


def test_the_spark_of_pyspark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    need_spark(None)


def test_yarn_without_its_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asked a resource manager at 0.0.0.0, again and again."""
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(seep.Misuse, match=r"^master='yarn' .* set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        start("spark", "yarn")
    assert (home / "kept" / "store").exists()
    monkeypatch.setenv("YARN_CONF_DIR", str(home))
    need_spark("yarn")


def test_a_process_with_a_spark_application(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's, or that of another flow: refused by Spark when the flow had begun and what was kept had gone."""
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", SimpleNamespace(appName="a notebook"))
    with pytest.raises(seep.Misuse, match=r"^this process has a Spark application already \('a notebook'\)"):
        start("spark")
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize("address", [None, "auto"])
def test_a_process_that_uses_ray(home: Path, monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """It was shut down under its user."""
    shut: list[bool] = []
    user = SimpleNamespace(is_initialized=lambda: True, shutdown=lambda: shut.append(True), __spec__=find_spec("ray"))
    monkeypatch.setitem(sys.modules, "ray", user)
    with pytest.raises(seep.Misuse, match=r"^this process uses Ray already"):
        start("ray", address)
    assert not shut
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize("name", ["master", "store", "checkpoints", "prometheus"])
def test_an_address_that_is_no_text(home: Path, name: str) -> None:
    flow = seep.Flow("kept")
    flow.source("rows", seep.MemorySource([{"a": 1}])).collect("out")
    wrong: Any = {name: 9090}
    with pytest.raises(seep.Misuse, match=f"^{name}=9090 is no address; give a text$"):
        seep.start(flow, on="local", **wrong)
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://127.0.0.1:port", "http://127.0.0.1:port"),
        ("http://127.0.0.1:99999", "http://127.0.0.1:99999"),
        ("http://", "http://"),
        ("http://:9090", "http://:9090"),
        ("127.0.0.1:9090", "127.0.0.1:9090"),
        ("htp://me:secret@host", "htp://me:...@host"),
    ],
)
def test_an_address_of_prometheus_that_leads_nowhere(home: Path, given: str, shown: str) -> None:
    """It was found with the first question only: a defect, said by `seep explain` alone."""
    flow = seep.Flow("kept")
    flow.source("rows", seep.MemorySource([{"a": 1}])).collect("out")
    with pytest.raises(seep.Misuse) as refused:
        seep.start(flow, on="local", prometheus=given)
    assert str(refused.value) == f"prometheus={shown!r} is no address; give one such as http://127.0.0.1:9090"
    assert (home / "kept" / "store").exists()


WRONG = (
    "spark://127.0.0.1",
    "local-cluster[3,2]",
    "local-cluster[0,2,900]",
    "local[0]",
    "local-cluster",
    "yarn-client",
    "",
)
RIGHT = (
    "spark://[::1]:7077,b:7078",
    "local-cluster[3, 2, 900]",
    "local",
    "local[*]",
    "local[2,3]",
    "yarn",
    "k8s://https://h",
)


@pytest.mark.parametrize("master", WRONG)
def test_a_master_that_spark_would_trip_over_later_is_refused(home: Path, master: str) -> None:
    """A stack of Java's, or executors that never come; and what an earlier run had kept was gone."""
    with pytest.raises(seep.Misuse, match=r"^master='.*'; Spark knows spark://HOST:PORT, local-cluster"):
        start("spark", master)
    assert (home / "kept" / "store").exists()


@pytest.mark.parametrize("master", RIGHT)
def test_other_masters_are_sparks_to_judge(master: str) -> None:
    assert re.fullmatch(MASTERS, master)


def test_a_key_that_is_not_the_jobs(home: Path) -> None:
    flow = seep.Flow("kept")
    flow.source("rows", seep.MemorySource([{"a": 1}])).collect("out")
    path = home / "kept"
    JobDirectory.create(path, compile_flow(flow), flow.settings)
    (path / "store" / "journal").write_bytes(b"as it was")
    (path / "key").write_bytes(b"k" * 32)
    with pytest.raises(
        seep.Misuse, match=r"cannot be resumed: its plan: the MAC does not match.*is its key the one"
    ) as no:
        seep.start(flow, resume=True)
    assert "\n" not in str(no.value)
    assert (path / "store" / "journal").read_bytes() == b"as it was"


def test_on_the_command_line(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(home, "17.0.1")))
    (home / "app.py").write_text(APP)
    call = ["seep", "run", str(home / "app.py"), "--on", "spark", "--master", f"spark://127.0.0.1:{closed_port()}"]
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("seep: the Spark master spark://127.0.0.1:")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://127.0.0.1:9/0?bogus=1", r"there is no option 'bogus'; such as redis://127\.0\.0\.1:6379/0$"),
        ("redis://127.0.0.1:9/abc", "the database 'abc' is no number; such as"),
        ("redis://127.0.0.1:99999/0", "Port out of range 0-65535; such as"),
    ],
)
def test_an_address_that_redis_would_misread(home: Path, url: str, says: str) -> None:
    flow = seep.Flow("kept")
    rows = flow.source("rows", seep.MemorySource([{"a": 1}]))
    rows.collect("out")
    with pytest.raises(seep.Misuse, match=says):
        seep.start(flow, store=url)
    for made in (
        lambda: seep.RedisStreamSource("s", url=url, schema={"a": int}).prepared(),
        lambda: seep.RedisSink("p:", url=url, key="a").prepared(),
    ):
        with pytest.raises(seep.Misuse, match=says) as refused:
            made()
        assert "\n" not in str(refused.value)
