"""Which app is which: the same in every process, another one after any change that could show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.cli.apps import load
from seep.flow.compile import compile_flow
from seep.runtime.fingerprint import fingerprint
from seep.runtime.identity import differences, identity_of
from seep.runtime.job import JobDirectory

ROOT = Path(__file__).parents[2]
HELPER = """
LIMIT = 3

def limited(n):
    return min(n, LIMIT)
"""
APP = """
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

import polars as pl
import seep
import helper

NAMES = {"a", "b", "c"}
START = datetime(2024, 1, 1, tzinfo=timezone.utc)

@dataclass
class Sale:
    store: str
    amount: int | None

def scaled(factor, row):
    def inner(n):
        return helper.limited(n * factor) if row.store in {"x", "y", "z"} | NAMES else 0
    return Sale(row.store, inner(row.amount))

class Visits(seep.Operator):
    seen = seep.MapState(str, int)
    total = seep.ValueState(int, default=0)

    def on_row(self, row, ctx):
        self.total.value += row.amount
        ctx.emit({"store": row.store, "total": self.total.value})

def build(parts=1):
    flow = seep.Flow("sales", epoch="20ms")
    sales = flow.source("sales", seep.MemorySource([Sale("a", 1), Sale("b", None)], schema=Sale))
    grown = sales.filter(pl.col("amount") > 0).map(partial(scaled, 2), schema=Sale)
    counted = grown.key_by("store").aggregate(n=seep.count()).named("count").scale(start=parts)
    counted.changes().filter(lambda row: row.n > 1 and START).collect("counts")
    sales.key_by("store").apply(Visits, out={"store": str, "total": int}).named("visits").collect("visited")
    return flow
"""
SHOW = """
import json, sys
from pathlib import Path
from tests.unit.test_identity import identity
print(json.dumps(identity(Path(sys.argv[1]))))
"""


def identity(app: Path) -> dict[str, Any]:
    (flow,) = load(app)
    return identity_of(compile_flow(flow), flow.settings)


def elsewhere(app: Path, seed: str) -> dict[str, Any]:
    """The same in a process of its own, with this seed of the bare hash."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    call = [sys.executable, "-c", SHOW, str(app)]
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "app.py").write_text(APP)
    yield tmp_path / "app.py"
    sys.modules.pop("helper", None)


@pytest.mark.timeout(60)
def test_the_same_app_is_the_same_in_every_process(app: Path) -> None:
    first = elsewhere(app, "1")
    assert set(first["parts"]) >= {"sales", "count", "visits", "counts", "visited"}
    # The second time its bytecode comes from the cache.
    assert differences(first, elsewhere(app, "7")) == ([], [])
    assert differences(first, identity(app)) == ([], [])


def test_what_could_show_counts_and_what_could_not_does_not(app: Path) -> None:
    first = identity(app)

    def changed(before: str, after: str) -> set[str]:
        assert before in APP
        app.write_text(APP.replace(before, after))
        return set(differences(first, identity(app))[0])

    assert changed("def build(parts=1)", "# moved\n\ndef build(parts=2)") == set(), "parallelism is the journal's"
    assert changed("self.total.value += row.amount", "self.total.value += row.amount + 1") == {"visits"}
    assert changed('Sale("a", 1)', 'Sale("a", 2)') == {"sales"}
    assert changed("row.n > 1", "row.n > 2") == {"count"}
    assert changed('amount") > 0', 'amount") > 1') == {"sales"}
    assert changed('"y", "z"}', '"y", "zz"}') == {"sales"}
    assert changed('NAMES = {"a", ', 'NAMES = {"d", ') == {"sales"}
    assert changed("partial(scaled, 2)", "partial(scaled, 3)") == {"sales"}
    assert changed('epoch="20ms"', 'epoch="30ms"') == {"the flow's settings"}
    assert "items" in changed('collect("counts")', 'collect("items")')
    app.with_name("helper.py").write_text(HELPER.replace("3", "4"))
    assert changed("NAMES", "NAMES") == {"sales"}, "a file of the user's that the app imports"


def test_values_and_functions() -> None:
    def adder(n: int) -> Any:
        return lambda x: x + n

    same = [
        (1, 1),
        ({1, 2, 3}, {3, 2, 1}),
        (adder(1), adder(1)),
        (Path("/a"), Path("/a")),
        (float("nan"), float("nan")),
    ]
    other = [(1, True), (1, "1"), ([1], (1,)), (adder(1), adder(2)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (1, 1.0)]
    assert all(fingerprint(one) == fingerprint(two) for one, two in same)
    assert all(fingerprint(one) != fingerprint(two) for one, two in other)
    around: list[Any] = [1]
    around.append(around)
    assert fingerprint(around) == fingerprint(around)


class Growing(seep.Source):
    schema = pa.schema({"n": pa.int64()})
    endless = True

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def partitions(self) -> int:  # type: ignore[override]
        return len(list(self.path.iterdir()))

    def read(self, position: Any) -> Any:
        return [], position


def test_what_has_come_since_makes_no_other_app(tmp_path: Path) -> None:
    """Who is cut off while files come must be able to go on; it does with those that there were."""
    (tmp_path / "b.csv").write_text("n\n1\n")

    def made(source: Any) -> Any:
        flow = seep.Flow("files")
        flow.source("numbers", source).collect("all")
        return compile_flow(flow)

    def sources() -> list[Any]:
        return [
            seep.FileSource(tmp_path, schema={"n": int}, follow=True),
            seep.FileSource(tmp_path / "*.csv"),
            Growing(tmp_path),
        ]

    settings = seep.Flow("files").settings
    before = [
        JobDirectory.create(tmp_path.parent / f"job{at}", made(one), settings) for at, one in enumerate(sources())
    ]
    (tmp_path / "a.csv").write_text("n\n2\n")
    for job, source in zip(before, sources(), strict=True):
        graph, _ = JobDirectory.resume(job.path, made(source), settings).code()
        assert graph.nodes["numbers"].make().splits == 1
        with pytest.raises(seep.Misuse, match="another app"):
            JobDirectory.resume(job.path, made(seep.FileSource(tmp_path, schema={"n": float})), settings)


def flow_of(limit: int) -> seep.Flow:
    flow = seep.Flow("numbers")
    numbers = flow.source("numbers", seep.MemorySource([{"n": 1}, {"n": 2}]))
    numbers.filter(lambda row: row.n < limit).collect("small")
    return flow


def test_a_job_is_resumed_by_its_own_app_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = compile_flow(flow_of(2)), compile_flow(flow_of(3))
    settings = flow_of(2).settings
    job = JobDirectory.create(tmp_path / "job", one, settings)
    code = (job.path / "code").read_bytes()
    assert JobDirectory.resume(tmp_path / "job", compile_flow(flow_of(2)), settings).code()[1] == settings
    with pytest.raises(
        seep.Misuse, match=r"was started from another app \(different: numbers\); resume it with the app"
    ):
        JobDirectory.resume(tmp_path / "job", two, settings)
    assert (job.path / "code").read_bytes() == code
    monkeypatch.setattr("seep.runtime.identity.version", lambda library: "99")
    with pytest.raises(seep.Misuse, match=r"was started with other libraries \(.*polars .*, here 99"):
        JobDirectory.resume(tmp_path / "job", one, settings)
    assert identity_of(one, settings)["versions"]["seep"] == "99"


def test_resume_of_another_app_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    seep.run(flow_of(2), on="local")
    with pytest.raises(seep.Misuse, match="another app"):
        seep.start(flow_of(3), resume=True)
