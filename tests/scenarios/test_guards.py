"""What must not happen to a running flow, asked for on purpose: one line says why not, and it runs on as it was."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.backends.local import LocalBackend
from seep.cli.main import main
from seep.control.observed import Observed
from seep.model.settings import Settings
from seep.running.job import Job
from seep.runtime.watch import memory_bytes
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import Gated, advance, expected, until
from tests.scenarios.test_elastic import slow

ROWS = 4_000
LONG_ROWS = 10_000
"""They still come when a policy decides for the first time, some eight seconds after the start."""


class Raises:
    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, int]:
        raise ValueError("no idea")


class Asks:
    def __init__(self, count: int) -> None:
        self.count = count

    def decide(self, seen: Observed, operators: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(operators, self.count)


def held(job: Job, operator: str) -> list[str]:
    """Why nothing was done about it, each time."""
    found = [made["held"] for made in job.explain()["decisions"] if made["operator"] == operator and made["held"]]
    assert all("\n" not in why for why in found)
    return found


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    """The command line's exit code and words."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["seep", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.mark.timeout(90)
def test_policies_and_numbers_that_make_no_sense(
    begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = tmp_path / "gate"
    flow = seep.Flow("nonsense", epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(ROWS, 500, gate)).key_by("key")
    for name, policy in {"raises": Raises(), "minus": Asks(-1), "million": Asks(10**6)}.items():
        counted = numbers.aggregate(count=seep.count(), sum=seep.total("n")).named(name)
        counted.scale(start=2, min=2, max=4, policy=policy).collect(f"{name}-out")
    job = begin(flow)
    until(lambda: all(held(job, name) for name in ("raises", "minus", "million")), "all of them to be asked", 40.0)
    assert held(job, "raises")[-1] == "policy: Raises raised ValueError: no idea"
    assert held(job, "minus")[-1] == "policy: it asks for -1 partitions, which is no number from 1 to 4096"
    assert held(job, "million")[-1] == "policy: it asks for 1000000 partitions, which is no number from 1 to 4096"
    assert job.watch.governor.guards.partition_bytes == memory_bytes() / 4

    version = job.journal.version
    for count in (-1, 0, 1, 5, 10**6):
        with pytest.raises(seep.Misuse, match=f"^raises may have 2 to 4 partitions, not {count}$"):
            job.scale("raises", count)
    for count in ("1", "5"):
        code, out, err = said(monkeypatch, capsys, "scale", "nonsense", f"raises={count}")
        assert (code, out, err) == (2, "", f"seep: raises may have 2 to 4 partitions, not {count}\n")
    for count in ("-1", "0", "1000000", "many"):
        code, out, err = said(monkeypatch, capsys, "scale", "nonsense", f"raises={count}")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert count in err
    assert job.journal.version == version, "nothing has changed"
    gate.touch()
    result = job.wait(60.0)
    for name in ("raises", "minus", "million"):
        found = {row["key"]: (row["count"], row["sum"]) for row in result[f"{name}-out"].to_pylist()}
        assert found == expected(ROWS)


def mostly_one(i: int) -> dict[str, Any]:
    return {"key": "hot" if i * 7919 % 97 >= 5 else f"k{i % 7}", "n": i}


class Sleepy(seep.Operator):
    count = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        time.sleep(0.004)
        self.count.value += 1
        ctx.emit({"key": row.key, "count": self.count.value})


@pytest.mark.timeout(90)
def test_a_hot_key_that_no_split_can_help(begin: Start, tmp_path: Path) -> None:
    flow = seep.Flow("hot", epoch="50ms", checkpoint="500ms")
    numbers = flow.source("numbers", Gated(20_000, 400, tmp_path / "gate", mostly_one)).key_by("key")
    worked = numbers.apply(Sleepy(), out={"key": str, "count": int}).named("work")
    worked.scale(start=1, max=6, policy="rate").collect("worked")
    job = begin(flow)
    until(lambda: any(why.startswith("hot-key: one key alone") for why in held(job, "work")), "the key to be named", 40)
    assert "no split helps that" in next(why for why in held(job, "work") if why.startswith("hot-key"))
    assert len(job.journal.live("work")) == 1
    advance(job, 5, "worked")


class Capped(LocalBackend):
    """So many slots and no more, like a cluster that is full."""

    most = 2

    def want(self, count: int) -> None:
        super().want(min(count, self.most))


class Impatient(seep.Flow):
    """Calls a pool empty sooner than usual."""

    @property
    def settings(self) -> Settings:
        return with_fields(super().settings, suspect_ms=2_000.0)


@pytest.mark.timeout(120)
def test_no_slot_is_free(
    begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows wait, the reason is said, and what is lost comes back beside others."""
    monkeypatch.setattr("seep.running.job.LocalBackend", Capped)
    monkeypatch.setattr("tests.scenarios.test_elastic.seep.Flow", Impatient)
    gate = tmp_path / "gate"
    job = begin(slow("full", gate, LONG_ROWS, "rate"), workers=2)
    until(lambda: any(why.startswith("slots: ") for why in held(job, "work")), "the reason", 40.0)
    assert "2 of 3 workers wanted are there" in held(job, "work")[-1]
    assert len(job.journal.live("work")) == 1
    code, out, _ = said(monkeypatch, capsys, "explain", "full")
    assert code == 0
    assert "  no slot is free: 2 of 3 workers wanted are there" in out

    Capped.most = 1
    job.kill("work", 0)
    until(lambda: any("beside others" in step["what"] for step in job.explain()["steps"]), "its return")
    advance(job, 5, "worked")
    assert len(job.host.view.workers) == 1
    gate.touch()
    last: dict[str, tuple[int, int]] = {}
    for row in job.wait(60.0)["worked"].to_pylist():
        assert row["count"] == last.get(row["key"], (0, 0))[0] + 1, "in order, each once"
        last[row["key"]] = (row["count"], row["sum"])
    assert last == expected(LONG_ROWS)


@pytest.mark.timeout(90)
def test_a_flow_that_gets_fewer_workers_than_asked_for_starts_with_those(
    begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.running.job.LocalBackend", Capped)
    monkeypatch.setattr("tests.scenarios.test_elastic.seep.Flow", Impatient)
    monkeypatch.setattr("seep.control.pool.START_WAIT", 2)
    Capped.most = 2
    gate = tmp_path / "gate"
    gate.touch()
    job = begin(slow("few", gate, 400, "rate"), workers=4)
    until(lambda: "the flow waits for more" in job.explain()["pool"]["shortage"], "the reason")
    assert len(job.wait(60.0)["worked"]) == 400
