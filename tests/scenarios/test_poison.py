"""Rows that end the process which runs them: found after a few deaths, left out, told of; all other rows are exact."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import seep
from seep.runtime.deadletters import NAME
from seep.runtime.home import job_path
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import send_signal

ROWS = 400
BAD = 237
DEATHS = 5
"""Three make a row suspect, two more are noted on it."""


def exits() -> None:
    os._exit(3)


def faults() -> None:
    ctypes.string_at(0)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


WAYS: dict[str, Callable[[], None]] = {"exit": exits, "fault": faults, "memory": is_killed}


def numbers(name: str, per_epoch: int = 20) -> tuple[seep.Flow, Any]:
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    rows = [{"k": n % 7, "n": n} for n in range(ROWS)]
    return flow, flow.source("numbers", seep.MemorySource(rows, per_epoch=per_epoch))


def losses(job: Any) -> int:
    return len({what for _, what in job.host.view.decisions if " lost" in what})


def poisons(job: Any) -> list[str]:
    return [what for _, what in job.host.view.decisions if what.startswith("POISON")]


GOOD = [n for n in range(ROWS) if n != BAD]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("way", ["exit", "fault", pytest.param("memory", marks=pytest.mark.slow)])
def test_a_row_that_kills_its_source_is_found(begin: Start, way: str) -> None:
    def double(row: Any) -> dict[str, int]:
        if row.n == BAD:
            WAYS[way]()
        return {"n": row.n}

    flow, source = numbers(f"source-{way}")
    doubled = source.map(double, schema={"n": int}).named("doubling")
    doubled.collect("doubled")
    doubled.errors.collect("refused")
    job = begin(flow, on="local")
    result = job.wait(80)
    assert sorted(result["doubled"].column("n").to_pylist()) == GOOD
    (letter,) = result["refused"].to_pylist()
    assert json.loads(letter["row"])["n"] == BAD
    assert (letter["operator"], "the process died on this row" in letter["error"]) == ("doubling", True)
    assert len(poisons(job)) == 1
    assert losses(job) <= DEATHS + 3, "what is heard of the dead may lag behind"


class Deadly(seep.Operator):
    total = seep.ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        if row.n == BAD:
            os._exit(3)
        self.total.value += row.n
        ctx.emit({"n": row.n})


class DeadlyBatch(seep.BatchOperator):
    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        if BAD in batch["n"].to_pylist():
            os._exit(3)
        ctx.emit(batch.select(["k", "n"]))


def mapped(source: Any) -> Any:
    def run(batch: pa.RecordBatch) -> pa.RecordBatch:
        if BAD in batch["n"].to_pylist():
            os._exit(3)
        return batch.select(["n"])

    return source.key_by("k").shuffle().map_batch(run, schema={"n": int})


def folded(source: Any) -> Any:
    def later(so_far: Any, row: Any) -> Any:
        if row.n == BAD:
            os._exit(3)
        return row

    return source.key_by("k").reduce(later)


class Greatest(seep.Aggregate):
    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        if value == BAD:
            os._exit(3)
        return max(state, value)

    def result(self, state: int) -> int:
        return state


VERBS: dict[str, Callable[[Any], Any]] = {
    "apply": lambda source: source.key_by("k").apply(Deadly, out={"n": int}),
    "batch": lambda source: source.key_by("k").apply(DeadlyBatch, out={"k": int, "n": int}),
    "map_batch": mapped,
    "reduce": folded,
}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("verb", [v if v == "apply" else pytest.param(v, marks=pytest.mark.slow) for v in VERBS])
def test_a_row_that_kills_an_operator_is_found(begin: Start, verb: str) -> None:
    flow, source = numbers(f"verb-{verb}")
    result_of = VERBS[verb](source).named("deadly")
    (result_of.changes() if verb == "reduce" else result_of).collect("out")
    result_of.errors.collect("refused")
    job = begin(flow, on="local")
    result = job.wait(80)
    letters = [json.loads(letter["row"])["n"] for letter in result["refused"].to_pylist()]
    # A columnar operator is called for whole keys: the key's rows of the epoch are refused together.
    refused = [n for n in range(BAD // 20 * 20, BAD // 20 * 20 + 20) if n % 7 == BAD % 7] if verb == "batch" else [BAD]
    assert sorted(letters) == refused
    out = sorted(result["out"].column("n").to_pylist())
    if verb == "reduce":
        assert BAD not in out
        assert max(out) == ROWS - 1
    else:
        assert out == [n for n in range(ROWS) if n not in refused]
    assert len(poisons(job)) == 1
    assert losses(job) <= DEATHS + 3, "what is heard of the dead may lag behind"


class Reminded(seep.Operator):
    """Remembers each row for a while, and dies of one when its time has come."""

    waiting = seep.ValueState(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.waiting.value = row.n
        ctx.set_timer(ctx.now, event_time=False)

    def on_timer(self, at: Any, ctx: Any) -> None:
        if self.waiting.value == BAD:
            os._exit(3)
        ctx.emit({"n": self.waiting.value})


@pytest.mark.timeout(90)
def test_a_timer_that_kills_is_found(begin: Start) -> None:
    """Left out is the call; what the key remembers stays."""
    flow, source = numbers("timer")
    reminded = source.key_by("n").apply(Reminded, out={"n": int}).named("reminding")
    reminded.collect("out")
    reminded.errors.collect("refused")
    job = begin(flow, on="local")
    result = job.wait(80)
    assert sorted(result["out"].column("n").to_pylist()) == GOOD
    (letter,) = result["refused"].to_pylist()
    assert (json.loads(letter["row"])["key"], letter["operator"]) == (BAD, "reminding")
    assert "the process died in this call" in letter["error"]
    (told,) = job.explain()["poison"]
    assert told.startswith("call ")
    assert "of reminding.on_timer in epoch" in told
    assert losses(job) <= DEATHS + 3, "what is heard of the dead may lag behind"


def killing(name: str, on_error: str) -> seep.Flow:
    flow, source = numbers(name)
    source.filter(lambda row: row.n != BAD or os._exit(3), on_error=on_error).named("choosing").collect("chosen")
    return flow


@pytest.mark.timeout(90)
def test_unclaimed_it_goes_to_the_file(begin: Start) -> None:
    job = begin(killing("unclaimed", "dead_letter"), on="local")
    result = job.wait(80)
    assert sorted(result["chosen"].column("n").to_pylist()) == GOOD
    letters = [json.loads(line) for line in (job_path("unclaimed") / NAME).read_text().splitlines()]
    assert {json.loads(letter["row"])["n"] for letter in letters} == {BAD}
    (told,) = job.explain()["poison"]
    assert "of choosing in the epoch after" in told


@pytest.mark.timeout(90)
def test_skipped_it_is_only_counted(begin: Start) -> None:
    job = begin(killing("skipping", "skip"), on="local")
    result = job.wait(80)
    assert sorted(result["chosen"].column("n").to_pylist()) == GOOD
    assert not (job_path("skipping") / NAME).exists()
    (source,) = job.status()["operators"]["numbers"]
    assert source["statistics"]["skipped"] == 1


@pytest.mark.timeout(90)
def test_fail_stops_with_the_name_of_the_row(begin: Start) -> None:
    job = begin(killing("failing", "fail"), on="local")
    with pytest.raises(seep.SeepError, match="choosing: the process died again and again on row 0:17 of choosing"):
        job.wait(80)


@pytest.mark.timeout(90)
def test_kills_from_outside_accuse_nobody(begin: Start) -> None:
    """SIGKILL from outside, a dozen times, whenever the partition is back: every row stays."""

    def slow(row: Any) -> dict[str, int]:
        time.sleep(0.004)
        return {"n": row.n}

    flow, source = numbers("outside")
    source.key_by("k").shuffle().map(slow, schema={"n": int}).named("slowly").collect("out")
    job = begin(flow, on="local")
    killed: set[str] = set()
    until = time.monotonic() + 60
    while len(killed) < 12 and not job.host.ended.is_set() and time.monotonic() < until:
        entries = [e for e in job.journal.entries.values() if e.partition.operator not in ("numbers", "out")]
        for worker in {e.worker for e in entries if e.worker} - killed:
            card = job.directory.registered().get(worker)
            if card is not None:
                killed.add(worker)
                send_signal(int(card["process"]), signal.SIGKILL)
        time.sleep(0.3)
    result = job.wait(60)
    assert len(killed) >= 5
    assert sorted(result["out"].column("n").to_pylist()) == list(range(ROWS))
    assert poisons(job) == []


@pytest.mark.timeout(90)
def test_a_row_that_kills_a_users_aggregate_is_found(begin: Start) -> None:
    flow, source = numbers("aggregate")
    greatest = source.filter(pl.col("n") <= BAD).key_by("k").aggregate(n=Greatest("n")).named("greatest")
    greatest.collect("out")
    job = begin(flow, on="local")
    rows = {row["k"]: row["n"] for row in job.wait(80)["out"].to_pylist()}
    assert rows == {k: max(n for n in range(BAD) if n % 7 == k) for k in range(7)}
    letters = [json.loads(line) for line in (job_path("aggregate") / NAME).read_text().splitlines()]
    assert {(json.loads(letter["row"])["n"], letter["operator"]) for letter in letters} == {(BAD, "greatest")}
    assert len(poisons(job)) == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("on", ["spark", "ray"])
def test_a_row_that_kills_is_found_on_every_backend(begin: Start, on: str) -> None:
    flow, source = numbers(f"on-{on}")
    kept = source.key_by("k").apply(Deadly, out={"n": int}).named("deadly")
    kept.collect("out")
    kept.errors.collect("refused")
    where = {"master": "local-cluster[1,4,900]"} if on == "spark" else {}
    job = begin(flow, on=on, **where)
    result = job.wait(220)
    assert sorted(result["out"].column("n").to_pylist()) == GOOD
    assert [json.loads(letter["row"])["n"] for letter in result["refused"].to_pylist()] == [BAD]
    assert len(poisons(job)) == 1
