"""Sweeps and workloads of one's own: what is run, what the table holds, and what is refused before anything runs."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import recovery
from benchmarks.catalogue import HEEDED, MODULES, check
from benchmarks.outcome import Options, Outcome
from benchmarks.own import workload_named
from benchmarks.picture import swept_figures
from benchmarks.sweeps import swept
from seep.cli.main import app
from seep.errors import Misuse

OWN = """
import polars as pl
import pyarrow as pa

import seep


def clicks(split, rows, seed):
    return pa.record_batch({"user": [f"u{i % 7}" for i in range(rows)]})


class ByUser:
    'Clicks of each user.'

    blocks = {"clicks": clicks}
    columns = ("user", "n")
    keys = ("user",)

    def build(self, streams):
        return streams["clicks"].key_by("user").aggregate(n=seep.count())

    def answer(self, frames):
        return frames["clicks"].group_by("user").agg(n=pl.len().cast(pl.Int64))

    def repeated(self, rows):
        return rows.group_by("user").agg(n=pl.col("times").sum())


class Lacking:
    blocks = {"clicks": clicks}


class Undecided(ByUser):
    keys = ()


class Unrepeated(ByUser):
    repeated = None


class Different(ByUser):
    def answer(self, frames):
        return frames["clicks"].group_by("user").agg(n=pl.len().cast(pl.Int64) + 1)


class Unanswered(ByUser):
    def answer(self, frames):
        return frames["clicks"].group_by("usr").agg(n=pl.len())


class Unbuilt(ByUser):
    def build(self, streams):
        raise ValueError("not\\ntoday")


class Miskeyed(ByUser):
    def build(self, streams):
        return streams["clicks"].key_by("usr").aggregate(n=seep.count())


class Misnamed(ByUser):
    columns = ("user", "m")


class Rowless(ByUser):
    blocks = {"clicks": lambda split, rows, seed: rows / 0}


class Raising:
    def __init__(self):
        raise ValueError("not today")
"""


def test_several_sweeps_make_every_combination() -> None:
    points = swept(Options(), ["checkpoint=1s,2s", "state=10MB,1GB", "keys=1_000"])
    assert [(p.options.checkpoint, p.options.state_bytes, p.options.keys) for p in points] == [
        (checkpoint, size, 1_000) for checkpoint in ("1s", "2s") for size in (10**7, 10**9)
    ]
    assert points[1].chosen == {"checkpoint": "1s", "state": "1GB", "keys": "1_000"}
    assert [point.chosen for point in swept(Options(), [])] == [{}]


@pytest.mark.parametrize(
    ("sweeps", "says"),
    [
        (["speed=1"], "'speed=1'; give one such as checkpoint=1s,5s"),
        (["keys"], "give one such as"),
        (["keys=many"], "'many' is no value of keys"),
        (["checkpoint=1s,5"], "'5' is no value of checkpoint"),
        (["state=much"], "'much' is no value of state"),
        (["policy=rate,clever"], "'clever' is no value of policy"),
        (["keys=1", "keys=2"], "swept twice"),
        (["keys=-1"], "'-1' is no value of keys: give a whole number from 1 up"),
        (["kills=2,0"], "'0' is no value of kills: give a whole number from 1 up"),
        (["rows=999"], "'999' is no value of rows: give a whole number from 1000 up"),
        (["workers=1.5"], "'1.5' is no value of workers: give a whole number from 1 up"),
        (["seed=-7"], "'-7' is no value of seed: give a whole number from 0 up"),
        (["rate=0"], "'0' is no value of rate: give a number from 1 up"),
        (["rate=nan"], "'nan' is no value of rate: give a number from 1 up"),
        (["seconds=inf"], "'inf' is no value of seconds: give a number from 0.1 up"),
    ],
)
def test_what_is_no_sweep(sweeps: list[str], says: str) -> None:
    with pytest.raises(Misuse, match=says) as refused:
        swept(Options(), sweeps)
    assert "\n" not in str(refused.value)


def test_what_a_benchmark_would_pass_over_is_refused() -> None:
    assert set(HEEDED) == set(MODULES)
    check("recovery", Options(), ["checkpoint", "state", "seed"])
    with pytest.raises(Misuse, match="recovery does not depend on keys; it can be swept over: checkpoint, "):
        check("recovery", Options(), ["keys"])
    with pytest.raises(Misuse, match=r"^policies runs on local only, not on spark$"):
        check("policies", Options(on="spark"))
    check("recovery", Options(on="spark"))


def test_a_sweep_is_one_tidy_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(options: Options, tell: object) -> Outcome:
        slow = float(str(options.checkpoint).rstrip("s")) + options.state_bytes / 1e8
        figures: dict[str, Any] = {"recovery_ms": {"p50": slow, "max": 2 * slow}, "lost": 0, "each": [1, 2]}
        return Outcome("recovery", {"on": options.on, "kills": options.kills}, True, figures, {})

    monkeypatch.setattr(recovery, "run", run)
    table, picture = tmp_path / "out.csv", tmp_path / "out.png"
    call = ["bench", "recovery", "--sweep", "checkpoint=1s,2s,5s", "--sweep", "state=10MB,100MB", "--repeat", "5"]
    done = CliRunner().invoke(app, [*call, "--csv", str(table), "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ["name", "checkpoint", "state", "repetition", "on", "kills", "verified"]
    assert list(rows[0]) == [*columns, "recovery_ms_p50", "recovery_ms_max", "lost", "each"]
    assert len(rows) == 3 * 2 * 5
    assert [row["repetition"] for row in rows[:6]] == ["1", "2", "3", "4", "5", "1"]
    assert {(row["checkpoint"], row["state"]): row["recovery_ms_p50"] for row in rows}["5s", "100MB"] == "6.0"
    assert picture.stat().st_size > 10_000


def test_figures_worth_a_picture() -> None:
    one = {
        "name": "x",
        "checkpoint": "1s",
        "verified": True,
        "on": "local",
        "lost": 0,
        "gap_ms_p50": 1,
        "late": math.nan,
    }
    other = {**one, "checkpoint": "2s", "gap_ms_p50": 2}
    assert swept_figures([one, other]) == ["gap_ms_p50"]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the current directory, as somebody has it who types `seep bench mine:ByUser`."""
    (tmp_path / "mine_to_measure.py").write_text(OWN.replace("QQQ", '"""'))
    (tmp_path / "broken_to_measure.py").write_text("import nothing_of_that_name")
    (tmp_path / "ending_to_measure.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_workload_of_ones_own(beside: Path) -> None:
    workload = workload_named("mine_to_measure:ByUser")
    assert (workload.name, workload.about, workload.keys) == ("by-user", "Clicks of each user.", ("user",))
    check("mine_to_measure:ByUser", Options(), ["checkpoint", "workers"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine_to_measure:Nobody", "mine_to_measure has no Nobody"),
        ("mine_to_measure:Lacking", "has no build, answer, columns; it needs blocks, build, answer, columns"),
        ("mine_to_measure:Undecided", "give `time` .* or `keys`"),
        ("mine_to_measure:Unrepeated", "a Table needs `repeated`"),
        ("mine_to_measure:Different", "over rows that came once each, `answer` and `repeated` differ"),
        ("mine_to_measure:Unanswered", "'mine_to_measure:Unanswered': answer raises ColumnNotFoundError: .*usr"),
        ("mine_to_measure:Unbuilt", "build raises ValueError: not today"),
        ("mine_to_measure:Miskeyed", "build: .*usr"),
        ("mine_to_measure:Misnamed", "build gives no m; it gives user, n"),
        ("mine_to_measure:Rowless", "blocks raises ZeroDivisionError"),
        ("mine_to_measure:Raising", "cannot be made: ValueError: not today"),
        ("broken_to_measure:X", "No module named 'nothing_of_that_name'"),
        ("ending_to_measure:X", "ending_to_measure raises SystemExit: 3"),
        ("nowhere_to_measure:X", "is nowhere_to_measure.py here"),
        (":X", "give one of your own as module:Class"),
    ],
)
def test_what_is_no_workload(beside: Path, name: str, says: str) -> None:
    with pytest.raises(Misuse, match=says) as refused:
        check(name, Options())
    assert "\n" not in str(refused.value)
