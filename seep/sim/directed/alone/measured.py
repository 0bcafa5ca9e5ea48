"""What is seen of a flow in samples of its metrics: all of it reckoned by hand."""

from __future__ import annotations

from dataclasses import replace

from seep.control.observed import (
    ARRIVED,
    BUSY,
    HOT_SHARE,
    LAG_ROWS,
    LAG_SECONDS,
    LATENCY,
    ROWS_IN,
    ROWS_OUT,
    STATE_BYTES,
    TAKING,
    TOLD,
    USEFUL,
    Seen,
    Series,
    observe,
)
from seep.sim.directed.alone.metrics import LINE, running
from seep.sim.directed.registry import demand, scenario

Points = list[tuple[float, float]]
FRESH_SECONDS = 3.0


def _points(*values: float, first: float = 0.0) -> Points:
    """One for each second."""
    return [(first + second, value) for second, value in enumerate(values)]


def _series(name: str, operator: str, detail: str = "", partition: int = 0, worker: str = "w") -> Series:
    return Series(name, operator, str(partition), detail, worker)


def _samples(**work: tuple[float, ...]) -> dict[Series, Points]:
    """Three seconds of every partition at work for half of its time; ``work``: of that operator, by family."""
    found = {_series(BUSY, name): _points(0.0, 0.5, 1.0, 1.5) for name in LINE.nodes}
    return _whole(found | {_series(name, "work"): _points(*values) for name, values in work.items()})


def _whole(samples: dict[Series, Points], at: float = 3.0, work: int = 1) -> dict[Series, Points]:
    """With what every partition tells in any case: that it has done nothing."""
    nothing = [(at - ago, 0.0) for ago in (3.0, 2.0, 1.0, 0.0)]
    details = {"in": "in>work", "work": "work>out", "out": "+Inf"}
    for who in running(work=work).entries:
        for family in TOLD[LINE.nodes[who.operator].kind]:
            if not any(
                s.name == family and (s.operator, s.partition) == (who.operator, str(who.number)) for s in samples
            ):
                detail = details[who.operator] if family in (ROWS_OUT, LATENCY) else ""
                samples = {**samples, _series(family, who.operator, detail, who.number): nothing}
    return samples


def _see(samples: dict[Series, Points], at: float = 3.0, work: int = 1) -> dict[str, Seen]:
    seen = observe(LINE, running(work=work), _whole(samples, at, work), at, FRESH_SECONDS)
    demand(not seen.unknown and seen.at == at, f"unknown: {seen.unknown}")
    return dict(seen.operators)


@scenario
def all_that_is_measured_is_seen() -> None:
    """Two partitions of an operator; gauges count by their latest, counters by what they rose in a second."""
    samples = _samples()
    samples |= {
        _series(ARRIVED, "in"): _points(0, 120, 240, 360),
        _series(LAG_ROWS, "in"): _points(9, 9, 9, 7),
        _series(LAG_SECONDS, "in"): _points(3, 2, 1, 0.5),
        _series(ROWS_IN, "in"): _points(0, 100, 200, 300),
        _series(ROWS_OUT, "in", "in>work"): _points(0, 200, 400, 600),
        _series(ROWS_OUT, "in", "in>gone"): _points(0, 1, 2, 3),
        _series(ROWS_IN, "work", "in>work"): _points(0, 50, 100, 150),
        _series(ROWS_IN, "work", "other>work"): _points(0, 7, 14, 21),
        _series(ROWS_IN, "work", "in>work", 1): _points(0, 20, 40, 60),
        _series(ROWS_OUT, "work", "work>out"): _points(0, 30, 60, 90),
        _series(ROWS_OUT, "work", "work>out", 1): _points(0, 10, 20, 30),
        _series(BUSY, "work", "", 1): _points(0, 1.5, 3.0, 4.5),
        _series(USEFUL, "work"): _points(0, 0.4, 0.8, 1.2),
        _series(USEFUL, "work", "", 1): _points(0, 1.4, 2.8, 4.2),
        _series(STATE_BYTES, "work"): _points(5, 5, 5, 500),
        _series(STATE_BYTES, "work", "", 1): _points(5, 5, 5, 250),
        _series(HOT_SHARE, "work"): _points(0.9, 0.9, 0.9, 0.3),
        _series(HOT_SHARE, "work", "", 1): _points(0.9, 0.9, 0.9, 0.2),
        _series(ROWS_IN, "out"): _points(0, 40, 80, 120),
    }
    found = _see(samples, work=2)
    wanted = {
        "in": Seen("in", "source", (100.0,), (0.5,), {"work": 200.0}, 120.0, lag_rows=7.0, lag_seconds=0.5),
        "work": Seen(
            "work",
            "operator",
            (57.0, 20 / 1.5),  # at work for half as long again as there was time: in that much more time
            (0.5, 1.0),
            {"out": 30 + 10 / 1.5},
            state_bytes=750.0,
            hot_share=0.3,
            useful=(0.4, round(1.4 / 1.5, 9)),
        ),
        "out": Seen("out", "sink", (40.0,), (0.5,)),
    }
    for name, one in wanted.items():
        seen = found[name]
        seen = replace(seen, useful=tuple(round(share, 9) for share in seen.useful))
        demand(seen == one, f"{seen}, not {one}")
    work = found["work"]
    demand(work.partitions == 2 and work.busiest == 1.0, f"{work}")
    beside = (1.5 - 0.4 - 1.4 / 1.5) / 2
    demand(abs(work.fixed - beside) < 1e-9, f"{work.fixed}")
    demand(abs(work.rate - (57 + 20 / 1.5) / (1.5 - 2 * beside)) < 1e-9, f"{work.rate}")


@scenario
def work_beside_rows_is_told_apart() -> None:
    one = Seen("a", "operator", (100.0, 100.0), (0.5, 0.3))
    demand((one.fixed, one.rate) == (0.0, 250.0), "nothing is known of it")
    for useful, fixed in (((0.4, 0.3), 0.05), ((0.1, 0.1), 0.1), ((0.6, 0.6), 0.0)):
        found = replace(one, useful=useful)
        demand(abs(found.fixed - fixed) < 1e-9, f"{useful}: {found.fixed}")
        demand(abs(found.rate - 200 / (0.8 - 2 * fixed)) < 1e-6, f"{useful}: {found.rate}")
    demand(Seen("a", "operator", (0.0,), (0.0,)).rate == 0.0, "the rate of one that does nothing")
    demand(Seen("a", "operator", (), ()).busiest == 0.0, "nobody is busy")


def _taken(*epochs: tuple[int, float], partition: int = 0) -> dict[Series, Points]:
    """In each second a partition took these epochs: (rows, seconds)."""
    rows, seconds = [float(n) for n, _ in epochs], [t for _, t in epochs]
    sums = (
        float(len(epochs)),
        sum(rows),
        sum(seconds),
        sum(n * n for n in rows),
        sum(n * t for n, t in epochs),
        sum(t * t for t in seconds),
    )
    grown = {**dict(zip(TAKING, sums, strict=True)), BUSY: sums[2], USEFUL: sums[2]}
    return {
        _series(name, "work", "", partition): _points(*(at * each for at in range(4))) for name, each in grown.items()
    }


@scenario
def epochs_are_told_apart_from_rows() -> None:
    """Ten a second, each of 5 ms and 1 ms for each row, wherever there are many rows or few."""
    many = _taken(*((n, 0.005 + 0.001 * n) for n in (20, 30) * 5))
    few = _taken(*((n, 0.005 + 0.001 * n) for n in (8, 12) * 5), partition=1)
    work = _see(_samples() | many | few, work=2)["work"]
    demand(abs(work.by_epoch - 0.05) < 1e-9 and abs(work.fixed - 0.05) < 1e-9, f"{work}")
    demand(abs(work.rate - 1_000) < 1e-6, f"{work.rate}")
    for epochs, wanted in (
        (((5, 0.03),) * 10, 0.0),  # all alike
        (((5, 0.03), (5, 0.05)) * 5, 0.0),
        (((1, 0.01), (9, 0.02)) * 3, 0.0),  # 18 in the window
        (((1, 0.01), (9, 0.09)) * 5, 0.0),  # rows alone
        (((1, 0.03), (2, 0.02)) * 5, 10 * (0.025 - 1.5 * 2 * (0.00075 / 28 / 7.5) ** 0.5)),  # the fewer the longer
        (((1, 0.04), (2, 0.04)) * 5, 0.4),
        (((1, 0.04), (2, 0.04)) * 4, 0.32),
        (((1, 0.03), (1, 0.05), (2, 0.05), (2, 0.07)) * 3, 12 * (0.05 - 1.5 * (0.02 + 2 * (0.0036 / 34 / 9) ** 0.5))),
    ):
        found = _see(_samples() | _taken(*epochs))["work"].by_epoch
        demand(abs(found - wanted) < 1e-6, f"{epochs}: {found}, not {wanted}")
    one = Seen("a", "operator", (100.0,), (0.5,), useful=(0.4,), by_epoch=0.1)
    for by_epoch, useful, fixed in ((0.1, 0.4, 0.2), (0.3, 0.4, 0.3), (0.3, 0.9, 0.25), (0.1, 0.5, 0.1)):
        found_fixed = replace(one, by_epoch=by_epoch, useful=(useful,)).fixed
        demand(abs(found_fixed - fixed) < 1e-9, f"{by_epoch} of {useful}: {found_fixed}")


KINDS = [(node.name, node.kind) for node in LINE.nodes.values()]
NAN, INFINITE = float("nan"), float("inf")


def _but(family: str, name: str) -> dict[Series, Points]:
    """Without what a server leaves out."""
    return {series: points for series, points in _samples().items() if (series.name, series.operator) != (family, name)}


def _lacks(family: str, name: str) -> str:
    return f"{name}/0: 0 samples{'' if family == BUSY else f' of {family}'}, 3 are needed"


@scenario
def few_or_old_samples_say_nothing() -> None:
    for samples, at, unknown in (
        (_samples(), 6.0, ""),
        (_samples(), 6.1, "in/0: its latest sample is 3.1 s old"),
        (_samples() | {_series(BUSY, "out"): _points(0.0, 0.5, first=2.0)}, 3.0, "out/0: 2 samples, 3 are needed"),
        (_samples() | {_series(BUSY, "out"): _points(0.0, 0.5, 0.5, first=1.0)}, 3.0, ""),
        (_samples() | {_series(BUSY, "out"): []}, 3.0, "out/0: 0 samples, 3 are needed"),
        *((_but(family, name), 3.0, _lacks(family, name)) for name, kind in KINDS for family in TOLD[kind]),
        (_samples(**{STATE_BYTES: (1, 2, 3, NAN)}), 3.0, "work/0: seep_state_bytes is nan"),
        (_samples(**{ROWS_IN: (1, INFINITE, 3, 4)}), 3.0, "work/0: seep_rows_in_total is inf"),
    ):
        seen = observe(LINE, running(), samples, at, FRESH_SECONDS)
        demand(seen.unknown == unknown and bool(seen.operators) == (not unknown), f"{seen.unknown!r}, not {unknown!r}")
    more = observe(LINE, running(work=2), _samples(), 3.0, FRESH_SECONDS)
    demand(more.unknown == "work/1: 0 samples, 3 are needed", more.unknown)
    lone = _see(_samples() | {_series(ARRIVED, "in"): [(3.0, 500.0)]})
    demand(lone["in"].arrival == 0.0, "one sample is no rate")
    entries = {who: entry for who, entry in running().entries.items() if who.operator != "work"}
    none = observe(LINE, replace(running(), entries=entries), _samples(), 3.0, FRESH_SECONDS)
    demand(none.unknown == "work has no live partition", none.unknown)


@scenario
def of_two_workers_the_one_that_runs_it_counts() -> None:
    """In whichever order they are told, and whoever was heard last; a counter that fell was started anew."""
    ours = _samples(**{ROWS_IN: (0, 100, 200, 300)})
    for first in (-1.0, 0.0):
        theirs = {_series(ROWS_IN, "work", worker="other"): _points(0, 9_000, 9_000, 9_999, first=first)}
        for samples in (theirs | ours, ours | theirs):
            demand(_see(samples)["work"].rows == (100.0,), f"{_see(samples)['work']}")
    alone = {series._replace(worker="other") if series.operator == "work" else series: p for series, p in ours.items()}
    seen = observe(LINE, running(), alone, 3.0, FRESH_SECONDS)
    demand(seen.unknown == "work/0: 0 samples, 3 are needed", f"another flow of this name: {seen.unknown}")
    nameless = {series._replace(worker=""): points for series, points in ours.items()}
    demand(_see(nameless)["work"].rows == (100.0,), "nobody says whose they are")
    fell = _samples(**{ROWS_IN: (900, 1_000, 30, 90)})
    demand(_see(fell)["work"].rows == ((100 + 60) / 3,), f"{_see(fell)['work']}")


@scenario
def jump_counts_once_two_moments_agree() -> None:
    for counted, arrival, rising in (
        ((0, 100, 200, 300, 400), 100.0, False),
        ((0, 100, 200, 300, 500), 125.0, True),
        ((0, 100, 200, 500, 800), 300.0, False),
        ((0, 100, 200, 400, 700), 175.0, True),
        ((0, 300, 600, 700, 800), 200.0, False),
        ((0, 100, 200, 300, 442), 110.5, False),  # 1.29 times the mean
        ((0, 100, 200, 300, 446), 111.5, True),  # 1.31 times
        ((0, 100, 200, 456, 756), 300.0, False),  # the two differ by 15 %
        ((0, 100, 200, 450, 750), 187.5, True),
        ((0, 100, 200, 545, 845), 300.0, False),
        ((0, 0, 0, 350, 650), 162.5, True),
    ):
        samples = {series: _points(0.0, 0.5, 1.0, 1.5, 2.0) for series in _samples()}
        samples[_series(ARRIVED, "in")] = _points(*counted)
        found = _see(samples, at=4.0)["in"]
        demand((found.arrival, found.rising) == (arrival, rising), f"{counted}: {found.arrival}, {found.rising}")


@scenario
def who_gets_faster_is_warming() -> None:
    for rows, busy, warming in (
        ((0, 100, 200, 300), (0.0, 0.5, 1.0, 1.5), False),
        ((0, 3, 6, 300), (0.0, 1.0, 2.0, 3.0), True),
        ((0, 100, 300), (0.0, 0.5, 1.0), True),
        ((0, 100, 250), (0.0, 0.5, 1.0), False),
        ((0, 100, 251), (0.0, 0.5, 1.0), True),
        ((0, 200, 300), (0.0, 0.5, 1.0), False),
        ((0, 0, 0, 800), (0.0, 0.0, 0.0, 2.8), False),
        ((0, 0, 0, 0), (0.0, 0.0, 0.0, 0.0), False),
        ((0, 0, 300, 600), (0.0, 0.0, 0.5, 0.9), False),
    ):
        found = _see(_samples(**{ROWS_IN: rows, BUSY: busy}), at=len(rows) - 1.0)["work"]
        demand(found.warming is warming, f"{rows} in {busy}")
    useful = {ROWS_IN: (0.0, 100.0, 200.0, 300.0), USEFUL: (0.0, 0.4, 0.8, 0.9)}
    demand(_see(_samples(**useful))["work"].warming, "by the work for rows, where it is known")


@scenario
def slowest_hundredth_is_seen() -> None:
    """The bound that all but one in a hundred of those counted in the window stayed below."""
    for counts, wanted in (
        ({"0.1": (0, 980), "0.2": (0, 990), "+Inf": (0, 1_000)}, 0.2),
        ({"0.1": (0, 980), "0.2": (0, 989), "+Inf": (0, 1_000)}, float("inf")),
        ({"0.1": (500, 1_490), "0.2": (500, 1_500), "+Inf": (500, 1_500)}, 0.1),
        ({"0.1": (7, 7), "0.2": (7, 7), "+Inf": (9, 9)}, 0.0),
        ({"0.1": (5, 1), "0.2": (5, 3), "+Inf": (9, 19)}, float("inf")),
    ):
        samples = _samples()
        for bound, (first, last) in counts.items():
            samples[_series(LATENCY, "out", bound)] = _points(first, first, last)
            samples[_series(LATENCY, "out", bound, 0, "old")] = _points(0, 1e9, first=-5.0)
        found = _see(samples)["out"].latency_seconds
        demand(found == wanted, f"{counts}: {found}")
    demand(_see(_samples())["out"].latency_seconds == 0.0, "of nothing")
