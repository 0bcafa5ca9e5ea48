"""`recovery`: kill -9 under an open load; how long until the keys that the killed one owned arrive again.

Workers anywhere. On Spark executors and drivers besides, each with whatever it runs; the driver is resumed at once, and
how long that takes is told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.apart import WORKING_OFF_SECONDS, Apart
from benchmarks.arrivals import ArrivalSink, file_of, read_file
from benchmarks.drive import STUCK_SECONDS, Driven, Watched, committed, scratch
from benchmarks.load import (
    CHECKPOINT,
    EPOCH,
    FIRST,
    SECOND,
    SINK,
    SOURCE,
    Load,
    buckets_by_key,
    key_of_other,
    timing_of,
)
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.verdict import judge
from seep.errors import Misuse
from seep.protocol.journal import Entry

RATES = {"local": 100_000, "spark": 20_000, "ray": 20_000}
KEYS = 100_000
WORKERS = {"local": 6, "spark": 3, "ray": 3}
"""On local one for each partition: one kill, one restore. On Spark half of the embedded cluster's slots: the others are
there for the pool."""
PARTS = 2
WORKER, EXECUTOR, DRIVER = "worker", "executor", "driver"
KILLS = 100
SPARK_KILLS = 30
BETWEEN_SECONDS = (2.0, 3.0)
BAND_SECONDS = 1.0
NODES = (SOURCE, FIRST, SECOND, SINK)
STEADY_SECONDS = 2.0
Mask = npt.NDArray[np.bool_]


@dataclass
class Kill:
    kind: str
    at_ns: int
    seen_ns: int
    """What has arrived until then counts as seen: later than the kill only when a driver was killed."""
    epoch: int
    """The latest that had arrived."""
    band_ms: float
    owned: Mask
    """By key: did a partition that was killed own it?"""
    operators: tuple[str, ...]
    recovery_ms: float = float("nan")
    fresh_ms: float = float("nan")
    """The same, but until a row that was released after the kill: nothing that was in flight counts."""
    settle_seconds: float = float("nan")


def run(options: Options, tell: Tell) -> Outcome:
    if options.on not in RATES:
        raise Misuse(f"recovery --on {options.on}; it runs on: {', '.join(RATES)}")
    load, rng = Load.of(KEYS, options), Random(options.seed)
    rate = options.rate or RATES[options.on]
    workers = options.workers or WORKERS[options.on]
    kinds = plan(options.on, options.kills)
    rng.shuffle(kinds)
    with scratch() as home:
        path = home / "arrivals"
        tell("starting", 0.0)
        driven = _start(load, rate, workers, options, home)
        try:
            driven.steady(load.cold_keys)
            state_bytes = driven.state_bytes()
            done: list[Kill] = []
            for number, kind in enumerate(kinds):
                _until_warm(driven)
                done.append(_kill(driven, kind, rng))
                tell(f"{kind} {number + 1} of {len(kinds)}: {', '.join(done[-1].operators)}", number / len(kinds))
                _wait(driven, done[-1], rng)
            given = driven.drain()
        finally:
            driven.close()
        tell("comparing with the oracle", 1.0)
        verdict = judge(load, given, path, committed(driven.recorded))
        for kill in done:
            _measure(driven, kill, path)
    steady = driven.recent_lags_ms(STEADY_SECONDS, done[0].at_ns if done else None)
    return Outcome(
        "recovery",
        {
            "on": options.on,
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": KEYS,
            **timing_of(options),
            "state_bytes": state_bytes,
            "seed": options.seed,
        },
        verdict.identical,
        {**figures(done, options.on), "latency_ms": spread(steady), **verdict.figures()},
        _series(done),
    )


def plan(on: str, kills: int | None) -> list[str]:
    """What is to be killed.

    >>> [plan("spark", 4).count(kind) for kind in (WORKER, EXECUTOR, DRIVER)], plan("local", 2)
    ([4, 2, 1], ['worker', 'worker'])
    """
    if on != "spark":
        return [WORKER] * (KILLS if kills is None else kills)
    workers = SPARK_KILLS if kills is None else kills
    return [WORKER] * workers + [EXECUTOR] * max(1, workers // 2) + [DRIVER] * max(1, workers // 10)


def figures(done: Sequence[Kill], on: str) -> dict[str, Any]:
    """Of workers and executors together, then each kind apart."""
    near = [kill for kill in done if kill.kind != DRIVER]
    found: dict[str, Any] = {
        "kills": len(done),
        "unrecovered": sum(bool(np.isnan(kill.fresh_ms)) for kill in done),
        "recovery_ms": spread([kill.recovery_ms for kill in near]),
        "fresh_recovery_ms": spread([kill.fresh_ms for kill in near]),
        "settle_seconds": spread([kill.settle_seconds for kill in near]),
    }
    if on == "spark":
        for kind in (WORKER, EXECUTOR):
            those = [kill for kill in near if kill.kind == kind]
            found[f"{kind}_kills"] = len(those)
            found[f"{kind}_recovery_ms"] = spread([kill.recovery_ms for kill in those])
            found[f"{kind}_fresh_recovery_ms"] = spread([kill.fresh_ms for kill in those])
        drivers = [kill for kill in done if kill.kind == DRIVER]
        found["driver_kills"] = len(drivers)
        found["driver_resume_seconds"] = spread([kill.recovery_ms / 1000 for kill in drivers])
        found["driver_settle_seconds"] = spread([kill.settle_seconds for kill in drivers])
    else:
        for name in NODES:
            found[f"{name}_fresh_recovery_ms"] = spread([k.fresh_ms for k in done if name in k.operators])
    return found


def _series(done: Sequence[Kill]) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for kill in done:
        if kill.kind == DRIVER:
            found.setdefault("driver_resume_seconds", []).append(kill.recovery_ms / 1000)
        else:
            name = "recovery_ms" if kill.kind == WORKER else "executor_recovery_ms"
            found.setdefault(name, []).append(kill.recovery_ms)
            found.setdefault("fresh_recovery_ms", []).append(kill.fresh_ms)
            found.setdefault("settle_seconds", []).append(kill.settle_seconds)
    return found


def _start(load: Load, rate: float, workers: int, options: Options, home: Path) -> Watched:
    checkpoint, epoch = options.checkpoint or CHECKPOINT, options.epoch or EPOCH
    if options.on == "spark":
        where = ("--on", options.on, "--workers", str(workers))
        return Apart("recovery", load, rate, (checkpoint, epoch), PARTS, home, where)
    path = home / "arrivals"
    flow = load.flow("recovery", rate, ArrivalSink(path), checkpoint, PARTS, epoch)
    return Driven(flow, path, rate, options.on, workers)


def _until_warm(driven: Watched) -> None:
    """An executor takes seconds to come back, and its slots are a part of the pool."""
    if isinstance(driven, Apart):
        driven.until(driven.is_warm, "a warm worker", WORKING_OFF_SECONDS)


def _kill(driven: Watched, kind: str, rng: Random) -> Kill:
    """Kill one at random of this kind that runs something."""
    driven.look()
    before_ns = time.monotonic_ns()
    if kind == DRIVER:
        assert isinstance(driven, Apart)
        band_ms = max(driven.recent_lags_ms(BAND_SECONDS, before_ns), default=0.0)
        at_ns, seen_ns = driven.kill_driver()
        return Kill(kind, at_ns, seen_ns, driven.highest, band_ms, np.ones(KEYS, np.bool_), (DRIVER,))
    entries: list[Entry]
    if kind == EXECUTOR:
        assert isinstance(driven, Apart)
        executors = driven.by_executor()
        executor = rng.choice(sorted(executors))
        entries = executors[executor]
        driven.look()
        at_ns = driven.kill_executor(executor)
    else:
        workers = driven.by_worker()
        worker = rng.choice(sorted(workers))
        entries = workers[worker]
        driven.look()
        at_ns = time.monotonic_ns()
        driven.kill(worker)
    band_ms = max(driven.recent_lags_ms(BAND_SECONDS, at_ns), default=0.0)
    operators = tuple(sorted({entry.partition.operator for entry in entries}))
    return Kill(kind, at_ns, at_ns, driven.highest, band_ms, owned_by(entries, KEYS), operators)


def owned_by(entries: Iterable[Entry], keys: int) -> Mask:
    """By key: is it owned by one of these partitions?"""
    owned = np.zeros(keys, np.bool_)
    for entry in entries:
        owned |= owned_keys(entry, keys)
    return owned


def owned_keys(entry: Entry, keys: int) -> Mask:
    """By key: is it this partition's?"""
    buckets = buckets_by_key(entry.partition.operator, keys)
    return np.asarray((buckets >= entry.key_range.low) & (buckets < entry.key_range.high))


def _wait(driven: Watched, kill: Kill, rng: Random) -> None:
    """Until lag is back in its band, and some time has passed since the kill."""
    due_ns = kill.at_ns + rng.uniform(*BETWEEN_SECONDS) * 1e9

    def settled() -> bool:
        lags = driven.recent_lags_ms(0.2)
        fresh = driven.highest > kill.epoch + 3 and bool(lags)
        return fresh and lags[-1] <= kill.band_ms + 50 and time.monotonic_ns() > due_ns

    driven.until(settled, "recovery", WORKING_OFF_SECONDS if kill.kind == DRIVER else STUCK_SECONDS)


def _measure(driven: Watched, kill: Kill, path: Path) -> None:
    later = [a for a in driven.arrivals if a.at_ns > kill.seen_ns and a.epoch > kill.epoch and a.low >= 0]
    for arrival in sorted(later):
        passed_ms = (arrival.at_ns - kill.at_ns) / 1e6
        if np.isnan(kill.fresh_ms):
            record = read_file(file_of(path, arrival.epoch, arrival.low))
            owned = kill.owned[key_of_other(record.column("other").to_numpy())]
            if np.isnan(kill.recovery_ms) and owned.any():
                kill.recovery_ms = passed_ms
            if (driven.released_ns(record.column("newest").to_numpy()[owned]) > kill.at_ns).any():
                kill.fresh_ms = passed_ms
        if not np.isnan(kill.fresh_ms) and driven.lag_ms(arrival) <= kill.band_ms:
            kill.settle_seconds = passed_ms / 1000
            return
