"""`recovery`: kill -9 of random workers under an open load; how long until the keys they owned arrive again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from benchmarks.arrivals import ArrivalSink, file_of, read_file
from benchmarks.drive import Driven, committed, scratch
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
from seep.protocol.journal import Entry

RATE = 100_000
KEYS = 100_000
WORKERS = 6
"""One for each partition: one kill, one restore."""
PARTS = 2
KILLS = 100
BETWEEN_SECONDS = (2.0, 3.0)
BAND_SECONDS = 1.0
NODES = (SOURCE, FIRST, SECOND, SINK)
STEADY_SECONDS = 2.0
Mask = npt.NDArray[np.bool_]


@dataclass
class Kill:
    at_ns: int
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
    kills = KILLS if options.kills is None else options.kills
    rate = options.rate or RATE
    load, rng = Load.of(KEYS, options), Random(options.seed)
    workers = options.workers or WORKERS
    with scratch() as home:
        path = home / "arrivals"
        checkpoint, epoch = options.checkpoint or CHECKPOINT, options.epoch or EPOCH
        flow = load.flow("recovery", rate, ArrivalSink(path), checkpoint, PARTS, epoch=epoch)
        driven = Driven(flow, path, rate, options.on, workers)
        try:
            driven.steady(load.cold_keys)
            state_bytes = driven.state_bytes()
            done = []
            for number in range(kills):
                done.append(_kill(driven, rng, KEYS))
                tell(f"kill {number + 1}: {', '.join(done[-1].operators)}", number / kills)
                _wait(driven, done[-1], rng)
            given = driven.drain()
        finally:
            driven.close()
        tell("comparing with the oracle", 1.0)
        verdict = judge(load, given, path, committed(driven.job))
        for kill in done:
            _measure(driven, kill, path)
    recoveries = [kill.recovery_ms for kill in done]
    fresh = [kill.fresh_ms for kill in done]
    settled = [kill.settle_seconds for kill in done]
    first_ns = done[0].at_ns if done else None
    steady = driven.recent_lags_ms(STEADY_SECONDS, first_ns)
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
        {
            "kills": len(done),
            "unrecovered": int(np.isnan(fresh).sum()),
            "recovery_ms": spread(recoveries),
            "fresh_recovery_ms": spread(fresh),
            "settle_seconds": spread(settled),
            "latency_ms": spread(steady),
            **{
                f"fresh_recovery_ms_{name}": spread([k.fresh_ms for k in done if name in k.operators]) for name in NODES
            },
            **verdict.figures(),
        },
        {"recovery_ms": recoveries, "fresh_recovery_ms": fresh, "settle_seconds": settled},
    )


def _kill(driven: Driven, rng: Random, keys: int) -> Kill:
    entries = driven.by_worker()
    worker = rng.choice(sorted(entries))
    driven.look()
    at_ns = time.monotonic_ns()
    driven.job.host.backend.kill(worker)
    lags = driven.recent_lags_ms(BAND_SECONDS, at_ns)
    owned = np.zeros(keys, np.bool_)
    for entry in entries[worker]:
        owned |= owned_keys(entry, keys)
    operators = tuple(sorted({e.partition.operator for e in entries[worker]}))
    return Kill(at_ns, driven.highest, max(lags, default=0.0), owned, operators)


def owned_keys(entry: Entry, keys: int) -> Mask:
    """By key: is it this partition's?"""
    buckets = buckets_by_key(entry.partition.operator, keys)
    return np.asarray((buckets >= entry.key_range.low) & (buckets < entry.key_range.high))


def _wait(driven: Driven, kill: Kill, rng: Random) -> None:
    """Until lag is back in its band, and some time has passed since the kill."""
    due_ns = kill.at_ns + rng.uniform(*BETWEEN_SECONDS) * 1e9

    def settled() -> bool:
        lags = driven.recent_lags_ms(0.2)
        fresh = driven.highest > kill.epoch + 3 and bool(lags)
        return fresh and lags[-1] <= kill.band_ms + 50 and time.monotonic_ns() > due_ns

    driven.until(settled, "recovery")


def _measure(driven: Driven, kill: Kill, path: Path) -> None:
    later = [a for a in driven.arrivals if a.at_ns > kill.at_ns and a.epoch > kill.epoch and a.low >= 0]
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
