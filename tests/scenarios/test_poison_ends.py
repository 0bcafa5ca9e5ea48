"""Code at the ends of a flow that ends its process: a step before a sink is like any other, and a user's own source or
sink ends in a report that names it, not in restarts for ever."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pytest

import seep
from tests.scenarios.conftest import Start
from tests.scenarios.test_poison import BAD, DEATHS, ROWS, losses, numbers, poisons


@pytest.mark.timeout(90)
def test_a_row_that_kills_the_step_before_a_sink_is_found(begin: Start) -> None:
    """Such a step is fused into the operator in front of it."""

    def shown(row: Any) -> dict[str, int]:
        if row.n == BAD:
            os._exit(3)
        return {"n": row.n}

    flow, source = numbers("before-a-sink")
    latest = source.key_by("k").aggregate(n=seep.maximum("n")).changes()
    written = latest.map(shown, schema={"n": int}).named("showing")
    written.collect("out")
    written.errors.collect("refused")
    job = begin(flow, on="local")
    result = job.wait(80)
    letters = [json.loads(letter["row"])["n"] for letter in result["refused"].to_pylist()]
    out = result["out"].column("n").to_pylist()
    assert (set(letters), BAD in out, max(out)) == ({BAD}, False, ROWS - 1)
    assert len(poisons(job)) == 1


class Deadly(seep.Sink):
    """Dies when it is to write one row; all before it are written."""

    def write(self, epoch: int, batch: pa.RecordBatch) -> None:
        if BAD in batch.column("n").to_pylist():
            os._exit(3)

    def commit(self, epoch: int) -> None:
        """Nothing is held back."""


@pytest.mark.timeout(90)
def test_a_sink_that_kills_its_process_is_reported(begin: Start) -> None:
    """Though the flow before it goes on meanwhile: rows come without end, and each start commits some more."""
    flow = seep.Flow("deadly-sink", epoch="20ms", checkpoint="200ms")
    rows = flow.source("numbers", seep.GeneratorSource(lambda i: {"n": i}, rate=500))
    rows.sink("told", Deadly())
    job = begin(flow, on="local")
    with pytest.raises(seep.SeepError, match=r"sink 'told': write of epoch \d+: the process died again") as report:
        job.wait(80)
    assert "\n" not in str(report.value)
    assert losses(job) <= DEATHS + 3, "what is heard of the dead may lag behind"


class Dying(seep.Source):
    schema = {"n": int}  # noqa: RUF012

    def read(self, position: Any) -> tuple[list[list[dict[str, int]]], int | None]:
        at = position or 0
        if at >= BAD:
            os._exit(3)
        return [[{"n": at}]], at + 1


@pytest.mark.timeout(90)
def test_a_source_that_kills_its_process_is_reported(begin: Start) -> None:
    flow = seep.Flow("deadly-source", epoch="20ms", checkpoint="200ms")
    flow.source("numbers", Dying()).collect("out")
    job = begin(flow, on="local")
    with pytest.raises(
        seep.SeepError, match=r"source 'numbers': read of split 0 at \[237, .*: the process died"
    ) as report:
        job.wait(80)
    assert "\n" not in str(report.value)
    assert losses(job) <= DEATHS + 3, "what is heard of the dead may lag behind"
