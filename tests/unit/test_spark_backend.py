"""Spark's Java process, as pyspark keeps it: one that died, one that is starting, one that others use afterwards."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.backends import spark as backend
from seep.backends.needs import _need_no_other_application
from seep.backends.spark import SparkBackend
from seep.errors import Misuse
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.runtime.job import JobDirectory

SparkContext: Any = pytest.importorskip("pyspark").SparkContext


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    return JobDirectory.create(tmp_path / "job", Graph({}, ()), Settings())


class Java:
    """A process, and the gateway to it."""

    def __init__(self, code: int | None) -> None:
        self.proc, self.code, self.terminated = self, code, False

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.terminated = True


@pytest.mark.parametrize(("code", "kept"), [(None, True), (0, False), (-9, False)])
def test_a_java_process_that_has_ended_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, code: int | None, kept: bool
) -> None:
    """No flow could be started in a Python whose Spark had once been killed."""
    old = Java(code)
    monkeypatch.setattr(SparkContext, "_gateway", old)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(appName="of before"))
    with contextlib.nullcontext() if not kept else pytest.raises(Misuse, match="already \\('of before'\\)"):
        _need_no_other_application()
    found: list[Any] = []
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: found.append(SparkContext._gateway))
    monkeypatch.setattr("pyspark.SparkConf", lambda: None)
    backend._configuration()
    assert found == [old if kept else None]
    assert (SparkContext._active_spark_context is not None) is kept


@pytest.mark.parametrize("given", [False, True])
def test_a_start_that_is_broken_off_ends_its_java_process(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    java = Java(None)
    monkeypatch.setattr(SparkContext, "_gateway", java)
    context = SimpleNamespace(master="local[2]") if given else None
    SparkBackend(job, master="local[2]", context=context)._break_off()
    assert java.terminated is not given


class Levels:
    """A Java process's log: what each logger tells of."""

    def __init__(self) -> None:
        self.levels: dict[str, str] = {}
        self.Level = SimpleNamespace(WARN="warn", OFF="off")
        self.Configurator = SimpleNamespace(setLevel=self.levels.__setitem__)
        self.core = SimpleNamespace(config=self)
        self.org = SimpleNamespace(apache=SimpleNamespace(logging=SimpleNamespace(log4j=self)))


def test_a_stack_of_javas_for_each_worker_that_ends_is_not_printed(
    job: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But those of whoever uses the process afterwards are."""
    log = Levels()
    session = SimpleNamespace(
        _jvm=log, stop=lambda: None, _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    )
    monkeypatch.setattr(backend, "start_spark", lambda *_: session)
    slots = SparkBackend(job, master="local[2]")
    assert slots._start() is session
    assert log.levels == {"org.apache.spark.scheduler.TaskSetManager": "off"}
    slots._stop(session)
    assert log.levels == {"org.apache.spark.scheduler.TaskSetManager": "warn"}
