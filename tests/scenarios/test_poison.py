"""Rows that end the process which runs them: found after a few deaths, left out, told of; all other rows are exact."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import seep
from tests.scenarios.conftest import Start

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
@pytest.mark.parametrize("way", list(WAYS))
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
    assert losses(job) == DEATHS
