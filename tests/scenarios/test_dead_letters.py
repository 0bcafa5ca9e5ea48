"""User code that raises: the rest of the batch is unharmed, and what was refused is found where it was asked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.cli.main import main
from seep.runtime.deadletters import NAME, DeadLetters
from seep.runtime.home import job_path

ROWS = 300
HOWS = ["inline", "local"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    return tmp_path


def test_an_error_counts_no_rows_of_a_batch() -> None:
    """It said "row 0" of whatever row it was, since the row was tried alone."""
    flow = seep.Flow("counted")
    rows = flow.source("rows", seep.MemorySource([{"n": n} for n in range(4)]))
    halves = rows.map(lambda row: {"n": row.n / 2}, schema={"n": int})
    halves.collect("halves")
    halves.errors.collect("errors")
    errors = seep.run(flow)["errors"].column("error").to_pylist()
    told = "Misuse: column 'n': the row has {}, which is not a int64; round it, or declare a float"
    assert errors == [told.format(0.5), told.format(1.5)]


APP = """
import seep

flow = seep.Flow("halves")
rows = flow.source("rows", seep.MemorySource([{"n": n} for n in range(3)]))
halves = rows.map(lambda row: {"n": 6 // row.n}, schema={"n": int})
halves.collect("out")
"""


@pytest.mark.parametrize("taken", [False, True])
def test_seep_run_says_where_they_are(
    home: Path, taken: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "app.py").write_text(APP + ("halves.errors.collect('failed')" if taken else ""))
    monkeypatch.setattr(sys, "argv", ["seep", "run", str(home / "app.py"), "--workers", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 0
    assert "  out: 2 rows" in said.out
    where = f"seep: rows that failed, and that no .errors stream takes, are in {job_path('halves') / NAME}\n"
    assert said.err == ("" if taken else where)


def double(row: Any) -> dict[str, int]:
    if row.n % 10 == 3:
        raise ValueError(f"no {row.n}")
    return {"n": 2 * row.n}


def refusing(name: str, on_error: str, sink: bool) -> seep.Flow:
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", seep.MemorySource([{"n": n} for n in range(ROWS)], per_epoch=50))
    doubled = numbers.map(double, schema={"n": int}, on_error=on_error).named("doubling")
    doubled.collect("doubled")
    if sink:
        doubled.errors.collect("refused")
    return flow


GOOD = [2 * n for n in range(ROWS) if n % 10 != 3]
BAD = [n for n in range(ROWS) if n % 10 == 3]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("on", HOWS)
def test_dead_letters_go_to_their_sink(on: str) -> None:
    result = seep.run(refusing("letters", "dead_letter", sink=True), on=on)
    assert result["doubled"].column("n").to_pylist() == GOOD
    letters = result["refused"].to_pylist()
    assert [json.loads(letter["row"])["n"] for letter in letters] == BAD
    assert {letter["operator"] for letter in letters} == {"doubling"}
    assert letters[0]["error"] == "ValueError: no 3"
    by_epoch = {(json.loads(letter["row"])["n"] // 50, letter["epoch"]) for letter in letters}
    assert None not in {epoch for _, epoch in by_epoch}
    assert len(by_epoch) == len({epoch for _, epoch in by_epoch}) == ROWS // 50, "fifty rows to an epoch"


@pytest.mark.timeout(60)
def test_dead_letters_nobody_sinks_go_to_a_file(home: Path) -> None:
    result = seep.run(refusing("unclaimed", "dead_letter", sink=False), on="local")
    assert result["doubled"].column("n").to_pylist() == GOOD
    path = job_path("unclaimed") / NAME
    assert path.stat().st_mode & 0o077 == 0
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [json.loads(letter["row"])["n"] for letter in letters] == BAD


@pytest.mark.timeout(60)
@pytest.mark.parametrize("on", HOWS)
def test_skipped_rows_are_gone(on: str, home: Path) -> None:
    result = seep.run(refusing("skipping", "skip", sink=False), on=on)
    assert result["doubled"].column("n").to_pylist() == GOOD
    assert not (job_path("skipping") / NAME).exists()


class Fragile(seep.Operator):
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.total.value += row.n
        if row.n == 203:
            raise ValueError("two\nlines")
        ctx.emit({"total": self.total.value})


def failing_operator() -> seep.Flow:
    flow = seep.Flow("fragile", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", seep.MemorySource([{"n": n} for n in range(ROWS)], per_epoch=50))
    numbers.key_by().apply(Fragile, out={"total": int}, on_error="fail").named("adding").collect("totals")
    return flow


@pytest.mark.timeout(60)
@pytest.mark.parametrize("on", HOWS)
@pytest.mark.parametrize(
    ("flow", "says"),
    [
        (lambda: refusing("failing", "fail", sink=False), "numbers: doubling: ValueError: no 3"),
        (failing_operator, "adding: ValueError: two lines"),
    ],
)
def test_fail_stops_the_flow_with_one_line(flow: Any, says: str, on: str) -> None:
    with pytest.raises(seep.SeepError) as stopped:
        seep.run(flow(), on=on)
    report = str(stopped.value)
    assert report.startswith(says)
    assert "\n" not in report


def test_the_file_is_bounded(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, limit_bytes=1_000)
    for _ in range(10):
        letters._append([{"row": "x" * 100}] * 3)
    size = (tmp_path / NAME).stat().st_size
    assert 800 < size <= 1_000
    kept = (tmp_path / NAME).read_text().splitlines()
    assert all(json.loads(line)["row"] == "x" * 100 for line in kept)
    assert letters.unwritten == 30 - len(kept)
