"""SQL on a flow that runs and is killed meanwhile: every answer is one epoch of it all, and nothing stops for it."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable

import polars as pl
import pytest

import seep
from seep.cli.main import main
from seep.errors import Misuse, Retry
from seep.running.job import Job
from tests.scenarios.oracles import advance, epoch_of, expected, number, process_of, send_signal

ROWS = 100_000
TWICE = """with k as (select sum(count) n, sum(sum) s from by_key), m as (select sum(count) n, sum(sum) s from by_rest)
    select k.n, k.s, m.n as n_rest, m.s as s_rest, (select count(*) from by_key join by_rest using (count)) as both
    from k, m"""


def two_ways(name: str) -> seep.Flow:
    """Every row is counted and summed by two operators, by different keys: at one epoch both know the same rows, and
    these are the first so many."""
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", seep.MemorySource([number(i) for i in range(ROWS)], per_epoch=20))
    for called, key in (("by-key", "key"), ("by-rest", "rest")):
        kept = numbers.with_columns(rest=pl.col("n") % 5).key_by(key)
        kept.aggregate(count=seep.count(), sum=seep.total("n")).named(called).scale(start=2).collect(key)
    return flow


def assert_one_epoch(row: dict[str, int]) -> int:
    """The rows up to some number, whole: by both operators, and by arithmetic."""
    assert (row["n"], row["s"]) == (row["n_rest"], row["s_rest"])
    assert row["s"] == row["n"] * (row["n"] - 1) // 2
    return row["n"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_answer_is_one_epoch_also_while_workers_are_killed(begin: Callable[..., Job]) -> None:
    job = begin(two_ways("sales"))
    advance(job, 20, "key")
    stop, seen, problems = threading.Event(), list[int](), list[str]()

    def ask() -> None:
        while not stop.is_set():
            try:
                [row] = job.query(TWICE).to_pylist()
                seen.append(assert_one_epoch(row))
            except Retry:
                continue
            except BaseException as error:
                problems.append(repr(error))

    # Several at once, and somebody who takes savepoints.
    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    for deed in range(3):
        before = len(seen)
        send_signal(process_of(job.directory, job.journal.live("by-key")[0].worker), signal.SIGKILL)
        job.savepoint(f"s{deed}")
        while len(seen) < before + 4 and not problems:
            advance(job, 5, "key")
    stop.set()
    for reader in readers:
        reader.join(60)
    assert not problems
    assert len(seen) >= 12
    assert len(set(seen)) > 3, "the flow ran on"
    assert job.audit()["balanced"]


@pytest.mark.timeout(120)
def test_by_the_command_line_live_and_saved(
    begin: Callable[..., Job],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def state(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seep", "state", "sales", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    job = begin(two_ways("sales"))
    advance(job, 20, "key")
    saved = job.savepoint("v1")
    live = json.loads(state(TWICE, "--json")[1])
    assert assert_one_epoch(live["rows"][0]) > 0
    assert live["epoch"] > saved["epoch"]
    advance(job, 5, "key")

    by_key = "select * from by_key order by key"
    code, then, _ = state(by_key, "--at", "v1", "--json")
    answer = json.loads(then)
    assert (code, answer["epoch"]) == (0, saved["epoch"])
    read = sum(row["count"] for row in answer["rows"])
    assert {row["key"]: (row["count"], row["sum"]) for row in answer["rows"]} == expected(read)
    assert job.query(by_key, at="v1").to_pylist() == answer["rows"]
    assert job.query(by_key, at=saved["path"]).to_pylist() == answer["rows"]
    with pytest.raises(Misuse, match="there is no savepoint"):
        job.query(by_key, at="v2")

    before = epoch_of(job, "key")
    code, _, said = state("select * from nowhere")
    assert (code, said) == (2, "seep: sql: no table 'nowhere'; tables are: by_key, by_rest\n")
    assert epoch_of(job, "key") >= before

    job.close()
    assert state(by_key, "--at", "v1", "--json")[1] == then
    code, _, said = state(by_key)
    assert code == 2
    assert said.startswith("seep: flow 'sales' does not run here")
    for name, left in (("api", "http://127.0.0.1:9"), ("token", "x")):
        (job.directory.path / name).write_text(left)
    assert state(by_key, "--at", "v1", "--json")[1] == then, "also when it was killed"
    assert state(by_key)[0] == 3
