"""What is seen of a flow in samples of its metrics, written by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seep.control.observed import (
    ARRIVED,
    BUSY,
    BY_EPOCH_AT_MOST,
    LATENCY,
    ROWS_IN,
    ROWS_OUT,
    STATE_BYTES,
    TAKING,
    USEFUL,
    Seen,
    Series,
    observe,
)
from seep.control.policies import Rate
from tests.unit.test_policies import graph, journal


def series(name: str, operator: str, detail: str = "", worker: str = "w", partition: str = "0") -> Series:
    return Series(name, operator, partition, detail, worker)


def samples_of(growth: float = 100.0) -> dict[Series, list[tuple[float, float]]]:
    times = [0.0, 1.0, 2.0]
    found = {}
    for operator in ("in", "work", "out"):
        found[series(BUSY, operator)] = [(t, 0.5 * t) for t in times]
        found[series(ROWS_IN, operator)] = [(t, growth * t) for t in times]
    for edge in ("in>work", "work>out"):
        found[series(ROWS_OUT, edge.partition(">")[0], edge)] = [(t, growth * t) for t in times]
    found[series(LATENCY, "out", "+Inf")] = [(t, 0.0) for t in times]
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


def taken(epochs: list[tuple[int, float]], partition: str = "0") -> dict[Series, list[tuple[float, float]]]:
    """One second of a partition of `work` with these epochs (rows, seconds), after ten like it."""
    sums = (
        len(epochs),
        sum(rows for rows, _ in epochs),
        sum(seconds for _, seconds in epochs),
        sum(rows * rows for rows, _ in epochs),
        sum(rows * seconds for rows, seconds in epochs),
        sum(seconds * seconds for _, seconds in epochs),
    )
    found = {
        series(name, "work", "", "w", partition): [(t, s * (10.0 + t)) for t in (0.0, 1.0, 2.0)]
        for name, s in zip(TAKING, sums, strict=True)
    }
    for name in (BUSY, USEFUL):
        found[series(name, "work", "", "w", partition)] = [(t, sums[2] * t) for t in (0.0, 1.0, 2.0)]
    found[series(ROWS_OUT, "work", "work>out", "w", partition)] = [(t, 0.0) for t in (0.0, 1.0, 2.0)]
    return found


def working(*partitions: list[tuple[int, float]]) -> Seen:
    samples = {one: points for one, points in samples_of().items() if one.operator != "work"}
    for number, epochs in enumerate(partitions):
        samples |= taken(epochs, str(number))
    return observe(graph(), journal(work=len(partitions)), samples, 2.0, 3.0).operators["work"]


def test_what_epochs_cost_is_told_apart_from_what_rows_cost() -> None:
    """Ten epochs a second of 8 ms each, and 1 ms for each row: 1,000 rows take a second of work, whoever has few."""
    many, few = ([(rows, 0.008 + 0.001 * rows) for rows in (n - 3, n, n + 1, n + 2, n) * 2] for n in (20, 10))
    for partitions in ([many, many], [few, few, few], [many, few]):
        work = working(*partitions)
        assert work.by_epoch == pytest.approx(0.08)
        assert (work.rate, work.fixed) == (pytest.approx(1_000), pytest.approx(0.08))
    # What seems to have nothing to do with rows is sized by them all the same, for the most part.
    idle = working(*[[(rows, 0.04) for rows in (1, 2, 3, 2, 1) * 2]] * 3)
    assert (idle.by_epoch, idle.fixed) == (pytest.approx(0.4), pytest.approx(0.2))
    rare = working(*[[(rows, 0.09) for rows in (1, 2, 3, 2, 1) * 2]] * 3)
    assert rare.fixed == BY_EPOCH_AT_MOST


def test_what_was_done_in_a_longer_time_is_no_faster() -> None:
    """Inside an epoch of more than a second a worker tells what it knew before: 2.5 s of work between two looks
    that are 2 s apart, with 820 rows in each second of it. It was taken for 1,025."""
    samples = samples_of()
    samples[series(BUSY, "work")] = samples[series(USEFUL, "work")] = [(0.0, 0.0), (1.0, 0.0), (2.0, 2.5)]
    samples[series(ROWS_IN, "work")] = [(0.0, 0.0), (1.0, 0.0), (2.0, 2.5 * 820)]
    samples[series(ROWS_OUT, "work", "work>out")] = [(0.0, 0.0), (1.0, 0.0), (2.0, 2.5 * 410)]
    work = observe(graph(), journal(), samples, 2.5, 3.0).operators["work"]
    assert (work.rows, work.busy, work.useful, work.sent) == ((820.0,), (1.0,), (1.0,), {"out": 410.0})
    assert work.rate == 820.0


def test_epochs_that_tell_nothing_cost_nothing() -> None:
    assert working([(5, 0.01)] * 40).by_epoch == 0.0, "all alike"
    assert working([(1, 0.01), (9, 0.02)] * 5).by_epoch == 0.0, "twenty, and two of them are spent"
    assert working([(1, 0.01), (9, 0.02)] * 6).by_epoch > 0.0
    loose = [(1, 0.004), (1, 0.036), (9, 0.012), (9, 0.044)]
    assert 0.0 < working(loose * 3).by_epoch / 12 < working(loose * 10).by_epoch / 40 < 0.019, "as far as is certain"


def test_a_counter_that_fell_was_started_anew() -> None:
    samples = samples_of()
    samples[series(ROWS_IN, "work")] = [(0.0, 900.0), (1.0, 1_000.0), (2.0, 50.0)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["work"].rows == (50.0,)


def test_of_a_source_that_cannot_say_what_comes_what_it_read_counts() -> None:
    """Such as a user's own: that nothing came shrank what was busy, to the least there may be."""
    samples = samples_of(growth=140.0)
    seen = observe(graph(), journal(), samples, 2.0, 3.0)
    assert seen.operators["in"].arrival == 140.0
    assert [seen.operators[name].arrival for name in ("work", "out")] == [0.0, 0.0]
    for points in samples.values():
        points[:] = [(at, 1.8 * value) for at, value in points]
    assert Rate().decide(observe(graph(), journal(), samples, 2.0, 3.0), ["work"])["work"].count == 2, "it is busy 90 %"
    samples[series(ARRIVED, "in")] = [(2.0, 9e9)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["in"].arrival == 252.0, "one sample is no rate"
    samples[series(ARRIVED, "in")] = [(0.0, 0.0), (2.0, 600.0)]
    assert observe(graph(), journal(), samples, 2.0, 3.0).operators["in"].arrival == 300.0


def test_few_or_old_samples_say_nothing() -> None:
    assert observe(graph(), journal(), samples_of(), 9.0, 3.0).unknown == "in/0: its latest sample is 7.0 s old"
    assert observe(graph(), journal(work=2), samples_of(), 2.0, 3.0).unknown.startswith("work/1: 0 samples")


@pytest.mark.parametrize("last", [0.0, 2.0])
def test_of_two_workers_the_one_that_runs_it_counts(last: float) -> None:
    """The other has run it before. Or it is of another flow of this name, which the same server knows: such a flow was
    scaled by the load of the other one."""
    samples = samples_of()
    for name in (BUSY, ROWS_IN):
        samples[series(name, "work", worker="other")] = [(last - 2.0, 0.0), (last - 1.0, 9e9), (last, 9e9)]
    work = observe(graph(), journal(), samples, 2.0, 3.0).operators["work"]
    assert (work.rows, work.busy) == ((100.0,), (0.5,))


@pytest.mark.parametrize(
    ("name", "operator"), [(ROWS_IN, "work"), (ROWS_OUT, "in"), (ROWS_OUT, "work"), (LATENCY, "out")]
)
def test_what_a_server_leaves_out_is_not_taken_for_nothing(name: str, operator: str) -> None:
    """Without what its sources send, a busy operator was shrunk; without latency a goal for it was always met."""
    samples = {key: points for key, points in samples_of().items() if (key.name, key.operator) != (name, operator)}
    seen = observe(graph(), journal(), samples, 2.0, 3.0)
    assert seen.unknown == f"{operator}/0: 0 samples of {name}, 3 are needed"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [BUSY, ROWS_IN, STATE_BYTES])
def test_what_is_no_number_says_nothing(name: str, value: float) -> None:
    samples = samples_of() | {series(name, "work"): [(0.0, 0.0), (1.0, value), (2.0, 0.0)]}
    assert observe(graph(), journal(), samples, 2.0, 3.0).unknown == f"work/0: {name} is {value}"


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
