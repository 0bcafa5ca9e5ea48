"""Benchmarks at their smallest, on real processes: nothing is asserted of times, only that results are right."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.outcome import Options

SMALL = {
    "benchmarks.recovery": Options(kills=2, rate=5_000),
    "benchmarks.rescale": Options(kills=2, rate=5_000, seconds=1.0),
    "benchmarks.skew": Options(kills=1, rows=8_000),
}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("module", SMALL)
def test_a_small_run_is_verified(module: str) -> None:
    outcome = import_module(module).run(SMALL[module], lambda what, share: None)
    assert outcome.verified
    assert outcome.as_dict()["machine"]["cores"] >= 1
