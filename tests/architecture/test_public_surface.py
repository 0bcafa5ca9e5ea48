"""The public face is a list, held here: a name comes or goes by changing this file, never by accident."""

from __future__ import annotations

import subprocess
import sys

import seep

FACE = {
    # flows
    "Flow", "Stream", "Table", "tumbling", "sliding", "session", "count_window", "every",
    "count", "total", "mean", "minimum", "maximum",
    "variance", "median", "quantile", "distinct", "first", "last", "top", "rows", "Aggregate", "BatchAggregate",
    # users' operators
    "Operator", "ValueState", "ListState", "MapState", "SetState", "CounterState",
    "BatchOperator", "TableState",
    # ends
    "MemorySource", "GeneratorSource", "FileSource", "KafkaSource", "MemorySink", "FileSink", "KafkaSink",
    "ConsoleSink", "Source", "Sink", "RedisStreamSource", "RedisSink", "HttpSource",
    "SocketSource", "HttpSink",
    # running
    "run", "start",
    # errors, by what the caller should do
    "SeepError", "Misuse", "Retry", "Rebuild", "Fenced", "DataLoss", "Bug",
}  # fmt: skip

NOT_YET = {"batch", "nondeterministic"}
"""Names of the contract that no issue has asked for yet must not exist, not even as stubs."""


def test_the_list_is_the_list() -> None:
    assert set(seep.__all__) == FACE


def test_every_name_is_there() -> None:
    for name in seep.__all__:
        assert getattr(seep, name) is not None, name
    assert set(seep.__all__) <= set(dir(seep))


def test_every_name_has_a_docstring() -> None:
    assert [name for name in seep.__all__ if not (getattr(seep, name).__doc__ or "").strip()] == []


def test_every_name_has_an_example() -> None:
    faces = [(seep, name) for name in seep.__all__] + [(seep.testing, name) for name in seep.testing.__all__]
    without = [name for face, name in faces if ">>> " not in getattr(face, name).__doc__]
    assert without == ["chaos"]  # it takes real processes and seconds: docs/guide/experiments.md runs one


def test_no_name_ahead_of_its_time() -> None:
    assert [name for name in NOT_YET if hasattr(seep, name)] == []


def test_testing_is_there_without_an_import_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", "import seep; print(seep.testing.Driver.__name__)"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "Driver", done.stderr


def test_importing_seep_is_light() -> None:
    heavy = ("pyspark", "ray", "numba", "polars", "fastapi", "operators")
    code = f"import seep, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
