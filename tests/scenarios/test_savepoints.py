"""A savepoint of a running job starts another one, with another parallelism, exactly where it was taken."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import seep
from seep.errors import Misuse
from seep.running.job import Job
from tests.scenarios.oracles import Gated, advance, assert_exact, counting, expected

ROWS = 30_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_restored_with_another_parallelism(begin: Callable[..., Job], tmp_path: Path, before: int, after: int) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("saved", ROWS, gate, parts=before))
    advance(job, 20)
    saved = job.savepoint("v1")
    advance(job, 10)
    assert job.audit()["balanced"]
    job.close()
    first = {row["key"] for row in job.result()["counts"].to_pylist()}
    assert saved["epoch"] > 0

    job = begin(counting("saved", ROWS, gate, parts=after), restore="v1")
    advance(job, 5)
    assert len(job.journal.live("count")) == after
    assert job.audit()["balanced"]
    gate.touch()
    rows = job.wait(60)["counts"].to_pylist()
    # It goes on where the savepoint was: a key that had been seen by then is never inserted again.
    assert first == set(expected(ROWS))
    assert {row["change"] for row in rows} == {"update"}
    begun = {row["key"]: row["count"] for row in reversed(rows)}
    marked = [{**row, "change": "insert" if row["count"] == begun[row["key"]] else "update"} for row in rows]
    assert_exact(marked, ROWS)


def passed_on(rows: int, gate: Path) -> seep.Flow:
    flow = seep.Flow("passed", epoch="20ms", checkpoint="200ms")
    flow.source("numbers", Gated(rows, 1_000, gate)).filter(pl.col("n") % 2 == 0).collect("even")
    return flow


@pytest.mark.timeout(60)
def test_a_flow_without_state_goes_on_where_it_stood(begin: Callable[..., Job], tmp_path: Path) -> None:
    """Its sink needs no epoch again that it has committed; where the source stood then must be known all the same."""
    job = begin(passed_on(ROWS, tmp_path / "gate"))
    for name in ("v0", "v1"):
        advance(job, 10, "even")
        assert (job.audit()["problems"], job.audit()["balanced"]) == ([], True)
        job.savepoint(name)
    advance(job, 10, "even")
    job.close()
    before = job.result()["even"]["n"].to_pylist()

    (tmp_path / "gate").touch()
    job = begin(passed_on(ROWS, tmp_path / "gate"), restore="v1")
    after = job.wait(60)["even"]["n"].to_pylist()
    earlier = set(before) - set(after)
    assert earlier
    assert sorted([*earlier, *after]) == list(range(0, ROWS, 2))


@pytest.mark.timeout(60)
def test_nothing_that_a_savepoint_covers_is_held_back_by_a_sink(begin: Callable[..., Job], tmp_path: Path) -> None:
    """A file holds many epochs, and who starts from the savepoint writes none of those before it."""

    def filed() -> seep.Flow:
        flow = seep.Flow("filed", epoch="50ms", checkpoint="5m")
        numbers = flow.source("numbers", Gated(5_000, 500, tmp_path / "gate"))
        numbers.sink("out", seep.FileSink(tmp_path / "out", format="jsonl"))
        numbers.filter(pl.col("n") < 0).sink("none", seep.FileSink(tmp_path / "none"))
        return flow

    def written() -> set[int]:
        lines = [line for path in tmp_path.glob("out/*.jsonl") for line in path.read_text().splitlines()]
        return {json.loads(line)["n"] for line in lines}

    job = begin(filed())
    deadline = time.monotonic() + 30
    while not written():
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.05)
    job.savepoint("v1")
    job.close()
    assert len(written()) < 5_000
    (tmp_path / "gate").touch()
    begin(filed(), restore="v1").wait(30)
    assert written() == set(range(5_000))


@pytest.mark.timeout(60)
def test_names_that_are_none_and_savepoints_that_are_not_there(
    begin: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misuse, match="there is no savepoint"):
        begin(counting("saved", ROWS, tmp_path / "gate"), restore="nowhere")
    with pytest.raises(Misuse, match="give one of them"):
        begin(counting("saved", ROWS, tmp_path / "gate"), restore="nowhere", resume=True)
    job = begin(counting("saved", ROWS, tmp_path / "gate"))
    for name in ("../elsewhere", "", "a\nb", "x" * 101, "漢" * 90):
        with pytest.raises(Misuse, match="no name for a savepoint"):
            job.savepoint(name)
    # Before the whole flow keeps a checkpoint for it, which takes a moment, or for ever while nothing comes to rest.
    (job.directory.path / "savepoints" / "taken").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(job, "_fixing", None)
        with pytest.raises(Misuse, match="'taken' exists already"):
            job.savepoint("taken")
    advance(job, 2)
    job.savepoint("v1")
    with pytest.raises(Misuse, match="exists already"):
        job.savepoint("v1")


def counted(name: str, rows: int, gate: Path, operator: str = "count") -> seep.Flow:
    """The Table itself is what comes out: its final content shows what was restored."""
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(rows, 1_000, gate)).key_by("key")
    table = numbers.aggregate(count=seep.count(), sum=seep.total("n")).named(operator).scale(start=2)
    table.collect("counts")
    return flow


@pytest.mark.server
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "place",
    [
        "inline",
        "redis",
        pytest.param("spark", marks=pytest.mark.slow),
    ],
)
def test_restored_elsewhere(
    begin: Callable[..., Job], request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    """Taken from local processes and a directory, renamed on the way: it goes on in another place."""
    gate = tmp_path / "gate"
    job = begin(counted("elsewhere", ROWS, gate))
    advance(job, 20, "count")
    path = job.savepoint("v1")["path"]
    job.close()
    gate.touch()
    flow = counted("elsewhere", ROWS, gate, "tally")
    asked = {"restore": path, "rename": {"count": "tally"}}
    if place == "inline":
        result = seep.run(flow, on="inline", **asked)
    elif place == "redis":
        result = begin(flow, store=request.getfixturevalue("redis").url, **asked).wait(60)
    else:
        result = begin(flow, on="spark", master="local-cluster[1,4,900]", **asked).wait(100)
    found = {row["key"]: (row["count"], row["sum"]) for row in result["counts"].to_pylist()}
    assert found == expected(ROWS)


def test_restored_inline_a_source_keeps_its_pace(begin: Callable[..., Job], tmp_path: Path) -> None:
    """Its position holds the time of its first row, by the clock of the job: virtual time goes on from there."""
    job = begin(counting("paced", 500, tmp_path / "gate"))
    advance(job, 5)
    path = job.savepoint("v1")["path"]
    job.close()
    rows = seep.run(counting("paced", 500, tmp_path / "gate"), restore=path)["counts"].to_pylist()
    assert {row["key"]: (row["count"], row["sum"]) for row in rows} == expected(500)
