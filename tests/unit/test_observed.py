"""What is seen of a flow in samples of its metrics, written by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seep.control.observed import ARRIVED, BUSY, LATENCY, ROWS_IN, ROWS_OUT, USEFUL, Series, observe
from tests.unit.test_policies import graph, journal


def series(name: str, operator: str, detail: str = "", worker: str = "w", partition: str = "0") -> Series:
    return Series(name, operator, partition, detail, worker)


def samples_of(growth: float = 100.0) -> dict[Series, list[tuple[float, float]]]:
    times = [0.0, 1.0, 2.0]
    found = {}
    for operator in ("in", "work", "out"):
        found[series(BUSY, operator)] = [(t, 0.5 * t) for t in times]
        found[series(ROWS_IN, operator)] = [(t, growth * t) for t in times]
    found[series(ROWS_OUT, "in", "in>work")] = [(t, growth * t) for t in times]
    return found


def test_rates_come_from_the_samples() -> None:
    seen = observe(graph(), journal(), samples_of(), 2.5, 3.0)
    assert not seen.unknown
    work = seen.operators["work"]
    assert (work.rows, work.busy, work.rate) == ((100.0,), (0.5,), 200.0)
    assert seen.operators["in"].sent == {"work": 100.0}


def test_work_for_rows_is_told_apart() -> None:
    samples = samples_of()
    assert observe(graph(), journal(), samples, 2.5, 3.0).operators["work"].fixed == 0.0, "nobody says"
    samples[series(USEFUL, "work")] = [(t, 0.4 * t) for t in (0.0, 1.0, 2.0)]
    work = observe(graph(), journal(), samples, 2.5, 3.0).operators["work"]
    assert (work.useful, work.rate) == ((0.4,), 250.0)
    assert work.fixed == pytest.approx(0.1)


def test_a_counter_that_fell_was_started_anew() -> None:
    samples = samples_of()
    samples[series(ROWS_IN, "work")] = [(0.0, 900.0), (1.0, 1_000.0), (2.0, 50.0)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["work"].rows == (50.0,)


def test_few_or_old_samples_say_nothing() -> None:
    assert observe(graph(), journal(), samples_of(), 9.0, 3.0).unknown == "in/0: its latest sample is 7.0 s old"
    assert observe(graph(), journal(work=2), samples_of(), 2.0, 3.0).unknown.startswith("work/1: 0 samples")


def test_of_two_workers_the_one_heard_last_counts() -> None:
    samples = samples_of()
    samples[series(ROWS_IN, "work", worker="dead")] = [(-2.0, 0.0), (-1.0, 9e9), (0.0, 9e9)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["work"].rows == (100.0,)


@pytest.mark.parametrize(
    ("counted", "arrival", "rising"),
    [
        ((0, 100, 200, 300, 400), 100.0, False),
        ((0, 100, 200, 300, 500), 125.0, True),
        ((0, 100, 200, 500, 800), 300.0, False),
        ((0, 100, 200, 400, 700), 175.0, True),
        ((0, 300, 600, 700, 800), 200.0, False),
    ],
)
def test_a_jump_counts_once_two_moments_agree(counted: tuple[int, ...], arrival: float, rising: bool) -> None:
    times = [float(t) for t in range(len(counted))]
    samples = {key: [(t, 0.5 * t) for t in times] for key in samples_of()}
    samples[series(ARRIVED, "in")] = [(t, float(c)) for t, c in zip(times, counted, strict=True)]
    source = observe(graph(), journal(), samples, 4.0, 3.0).operators["in"]
    assert (source.arrival, source.rising) == (arrival, rising)


@pytest.mark.parametrize(
    ("rows", "busy", "warming"),
    [
        ((0, 100, 200, 300, 400), (0.0, 0.5, 1.0, 1.5, 2.0), False),
        ((0, 3, 6, 300, 600), (0.0, 1.0, 2.0, 3.0, 4.0), True),
        ((0, 100, 300), (0.0, 0.5, 1.0), True),
        ((0, 100, 230), (0.0, 0.5, 1.0), False),
        ((0, 200, 300), (0.0, 0.5, 1.0), False),
        ((0, 1, 2, 102, 202), (0.0, 1.0, 2.0, 2.2, 2.4), True),
        ((0, 0, 0, 0, 800), (0.0, 0.0, 0.0, 0.0, 2.8), False),
        ((0, 0, 0, 0, 0), (0.0, 0.0, 0.0, 0.0, 0.0), False),
    ],
)
def test_a_rate_of_the_first_moments_does_not_count(rows: Any, busy: Any, warming: bool) -> None:
    times = [float(t) for t in range(len(rows))]
    samples = {key: [(t, 0.5 * t) for t in times] for key in samples_of()}
    samples[series(ROWS_IN, "work")] = list(zip(times, rows, strict=True))
    samples[series(BUSY, "work")] = list(zip(times, busy, strict=True))
    assert observe(graph(), journal(), samples, times[-1], 3.0).operators["work"].warming is warming


def test_the_slowest_hundredth() -> None:
    samples = samples_of()
    for bound, counts in {"0.1": (0, 90, 980), "0.2": (0, 100, 995), "+Inf": (0, 100, 1_000)}.items():
        samples[series(LATENCY, "out", bound)] = [(float(t), float(c)) for t, c in enumerate(counts)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["out"].latency_seconds == 0.2
    assert math.isfinite(observe(graph(), journal(), samples_of(), 2.0, 3.0).operators["out"].latency_seconds)
