"""`seep upgrade` of one operator while it runs: each epoch is one code's, also when somebody is killed in the middle,
and what was upgraded is resumed as it was.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.running.chaos import Verdict
from seep.running.job import Job
from seep.testing import chaos
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import Gated, advance, number, process_of, send_signal, until, written_rows

ROWS = 20_000
OUT = {"key": str, "n": int, "epoch": int, "code": int, "held": int}
ROOT = Path(__file__).parents[2]


class Old(seep.Operator):
    held = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.held.value += row.n
        ctx.emit({"key": row.key, "n": row.n, "epoch": ctx.epoch, "code": 1, "held": self.held.value})


class New(seep.Operator):
    """Remembers a thousand times as much, as a text, under another name."""

    state_version = 2
    kept = seep.ValueState(str, default="0")

    def migrate(self, saved: dict[str, Any], version: int) -> dict[str, Any]:
        assert version == Old.state_version
        return {"kept": str(1_000 * saved["held"])}

    def on_row(self, row: Any, ctx: Any) -> None:
        self.kept.value = str(int(self.kept.value) + 2 * row.n)
        ctx.emit({"key": row.key, "n": row.n, "epoch": ctx.epoch, "code": 2, "held": int(self.kept.value)})


class Same(Old):
    """Other code that does the same."""

    def on_row(self, row: Any, ctx: Any) -> None:
        super().on_row(row, ctx)


class Stubborn(New):
    def migrate(self, saved: dict[str, Any], version: int) -> dict[str, Any]:
        raise ValueError("not this one")


def flow_of(operator: type[seep.Operator], gate: Path, parts: int = 1) -> seep.Flow:
    flow = seep.Flow("upgraded", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(ROWS, 1_000, gate))
    summed = numbers.key_by("key").apply(operator(), out=OUT).named("sums").scale(start=parts)
    summed.collect("rows")
    return flow


def check(rows: list[dict[str, Any]], first: int | None) -> None:
    """Every number once; what is held of its key, as the code of each epoch makes it, one row after the other."""
    held: dict[str, int] = {}
    codes: dict[str, int] = {}
    for row in rows:
        key, code = row["key"], 1 if first is None or row["epoch"] < first else 2
        assert key == number(row["n"])["key"]
        assert row["code"] == code, (row, first)
        if code == 2 and codes.get(key) == 1:
            held[key] *= 1_000
        codes[key] = code
        held[key] = held.get(key, 0) + code * row["n"]
        assert row["held"] == held[key], row
    assert sorted(row["n"] for row in rows) == list(range(ROWS))
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)


def kill(job: Job, victim: str) -> None:
    send_signal(process_of(job.directory, job.journal.live(victim)[0].worker), signal.SIGKILL)


def stopping(job: Job) -> bool:
    return any(replace.code for replace in job.journal.replaces)


def named(job: Job) -> bool:
    return any(replace.code and replace.at for replace in job.journal.replaces)


def upgrade_beside(job: Job, flow: seep.Flow, meanwhile: Callable[[], None]) -> dict[str, Any]:
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(job.upgrade(flow))
        except seep.SeepError as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    meanwhile()
    thread.join(90)
    assert answers, "the upgrade never ended"
    assert isinstance(answers[0], dict), answers[0]
    return answers[0]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("moment", "victim"), [(stopping, "sums"), (named, "sums"), pytest.param(stopping, "rows", marks=pytest.mark.slow)]
)
def test_a_worker_is_killed_in_an_upgrade(
    begin: Start, tmp_path: Path, moment: Callable[[Job], bool], victim: str
) -> None:
    gate = tmp_path / "gate"
    job = begin(flow_of(Old, gate, 2), workers=3)
    advance(job, 20, "rows")

    def hit() -> None:
        until(lambda: moment(job) or job.journal.codes, "the upgrade")
        kill(job, victim)

    answer = upgrade_beside(job, flow_of(New, gate), hit)
    (upgraded,) = answer["upgraded"]
    assert upgraded["operator"] == "sums"
    advance(job, 10, "rows")
    kill(job, "sums")
    gate.touch()
    check(job.wait(90)["rows"].to_pylist(), upgraded["epoch"])


@pytest.mark.timeout(180)
def test_what_was_upgraded_is_resumed(begin: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(flow_of(Old, gate), workers=2)
    advance(job, 20, "rows")
    first = job.upgrade(flow_of(New, gate))["upgraded"][0]["epoch"]
    assert set(job.state("sums").column_names) == {"key", "kept"}
    assert job.audit()["balanced"]
    advance(job, 5, "rows")
    for worker in job.directory.registered():
        send_signal(process_of(job.directory, worker), signal.SIGKILL)
    job.host.abandon()
    job.host.wait(20)
    job.close()
    with pytest.raises(seep.Misuse, match="different: sums"):
        seep.start(flow_of(Old, gate), resume=True)
    again = begin(flow_of(New, gate), workers=2, resume=True)
    advance(again, 10, "rows")
    with pytest.raises(seep.Misuse, match="nothing to upgrade"):
        again.upgrade(flow_of(New, gate))
    again.scale("sums", 2)
    gate.touch()
    check(again.wait(90)["rows"].to_pylist(), first)


@pytest.mark.timeout(120)
def test_what_is_refused_changes_nothing(begin: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(flow_of(Old, gate), workers=2)
    advance(job, 10, "rows")
    with pytest.raises(seep.Misuse, match=r"sums was not upgraded: .*migrate fails for the key .*not this one"):
        job.upgrade(flow_of(Stubborn, gate))
    other = seep.Flow("upgraded", epoch="20ms", checkpoint="200ms")
    numbers = other.source("numbers", Gated(ROWS, 1_000, gate))
    numbers.key_by("key").apply(New(), out={**OUT, "more": int}).named("sums").collect("rows")
    with pytest.raises(seep.Misuse, match=r"cannot be upgraded in place: .*savepoint"):
        job.upgrade(other)
    assert not job.journal.codes
    gate.touch()
    check(job.wait(90)["rows"].to_pylist(), None)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_chaos_judges_a_flow_that_is_upgraded_meanwhile(begin: Start, tmp_path: Path) -> None:
    """Once before chaos begins, once in the middle of it: each epoch is compared with what its code makes of it."""
    gate = tmp_path / "gate"
    job = begin(flow_of(Old, gate), workers=3)
    advance(job, 10, "rows")
    job.upgrade(flow_of(Same, gate))
    verdicts: list[Verdict] = []
    beside = threading.Thread(target=lambda: verdicts.append(chaos(job, "kill every 1500ms", seconds=6.0)))
    beside.start()
    time.sleep(2.5)
    first = job.upgrade(flow_of(New, gate))["upgraded"][0]["epoch"]
    beside.join(60)
    (found,) = verdicts
    assert found.good, found
    assert (found.compared > 1_000, found.done["kill"] >= 2) == (True, True)
    gate.touch()
    check(job.wait(60)["rows"].to_pylist(), first)


APP = """
from pathlib import Path
import helper
import seep
from tests.scenarios.oracles import Gated

class Sums(seep.Operator):
    total = seep.ValueState(int, default=0)

    def on_row(self, row, ctx):
        self.total.value += 1
        ctx.emit({{"key": row.key, "n": row.n, "epoch": ctx.epoch, "code": helper.CODE, "held": self.total.value}})

flow = seep.Flow("shop", epoch="20ms", checkpoint="200ms")
numbers = flow.source("numbers", Gated(60_000, 1_000, Path({gate!r})))
out = {{"key": str, "n": int, "epoch": int, "code": int, "held": int}}
numbers.key_by("key").apply(Sums(), out=out).named("sums").sink("written", seep.FileSink({files!r}, format="jsonl"))
"""


def seep_command(*arguments: str, wait: bool = True) -> Any:
    call = [sys.executable, "-c", "from seep.cli.main import main; main()", *arguments]
    if wait:
        return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    return subprocess.Popen(call, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(180)
def test_the_verb_takes_along_what_the_app_imports(home: Path, tmp_path: Path) -> None:
    """The running workers have imported a module of that name, as it was."""
    apps = []
    for code in (1, 2):
        folder = tmp_path / f"v{code}"
        folder.mkdir()
        (folder / "helper.py").write_text(f"CODE = {code}\n")
        apps.append(folder / "app.py")
        apps[-1].write_text(APP.format(gate=str(tmp_path / "gate"), files=str(tmp_path / "files")))
    program = seep_command("run", str(apps[0]), wait=False)
    try:
        until(lambda: len(list((tmp_path / "files").glob("*.jsonl"))) > 3, "the flow to run", 60)
        same = seep_command("upgrade", "shop", str(apps[0]), "--json")
        assert (same.returncode, same.stdout) == (2, "")
        assert "nothing to upgrade" in same.stderr
        done = seep_command("upgrade", "shop", str(apps[1]), "--json")
        assert done.returncode == 0, done.stderr
        first = json.loads(done.stdout)["upgraded"][0]["epoch"]
        time.sleep(0.5)
        (tmp_path / "gate").touch()
        assert program.wait(90) == 0
    finally:
        program.kill()
    found = written_rows(tmp_path / "files")
    assert len(found) == 60_000
    assert {row["code"] for row in found if row["epoch"] < first} == {1}
    assert {row["code"] for row in found if row["epoch"] >= first} == {2}
    assert all(row["held"] >= 1 for row in found)
