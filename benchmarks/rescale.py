"""`rescale`: random splits and merges under an open load; how long any key range is silent because of one.

``--part upgrade``: upgrades in place instead, of one operator, each to code that is written otherwise.

The gap of a change is, for each of 64 key ranges of the scaled operator, the longest time between two arrivals at the
sink while it went on, above what is usual: the 99.9th percentile of the same run without a change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

import seep
from benchmarks.arrivals import Arrival, ArrivalSink, file_of, read_file
from benchmarks.drive import Driven, committed, scratch
from benchmarks.load import CHECKPOINT, EPOCH, FIRST, SECOND, Load, buckets_by_key, key_of_other, timing_of
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.verdict import judge
from seep.errors import Misuse
from seep.model.ids import BUCKETS, KeyRange
from seep.running import Job

UPGRADE = "upgrade"
RATE = 100_000
KEYS = 100_000
WORKERS = 4
CHANGES = 100
PARTS = (1, 2, 3, 4)
LEAST_MOVED = 0.2
RANGES = 64
STEADY_SECONDS = 20.0
AFTER_SECONDS = 0.5
"""The old partitions are let go after the commit: what that costs belongs to the change, too."""


@dataclass(frozen=True)
class Change:
    operator: str
    began_ns: int
    ended_ns: int
    before: int
    after: int
    moved_share: float


def run(options: Options, tell: Tell) -> Outcome:
    if options.part not in (None, UPGRADE):
        raise Misuse(f"rescale --part {options.part}; it has: {UPGRADE}")
    wanted = CHANGES if options.kills is None else options.kills
    rate = options.rate or RATE
    load, workers = Load.of(KEYS, options), options.workers or WORKERS
    rng = Random(options.seed)
    with scratch() as home:
        path = home / "arrivals"
        checkpoint, epoch = options.checkpoint or CHECKPOINT, options.epoch or EPOCH
        make = partial(load.flow, "rescale", rate, ArrivalSink(path), checkpoint, 2, epoch=epoch)
        driven = Driven(make(), path, rate, options.on, workers)
        try:
            driven.steady(load.cold_keys)
            state_bytes = driven.state_bytes()
            calm_ns = time.monotonic_ns()
            driven.rest(options.seconds or STEADY_SECONDS)
            changes: list[Change] = []
            while len(changes) < wanted:
                upgraded = make(version=len(changes) + 1) if options.part == UPGRADE else None
                change = _change(driven, rng) if upgraded is None else _upgrade(driven, upgraded)
                if change.moved_share >= LEAST_MOVED:
                    changes.append(change)
                    tell(f"{change.operator}: {change.before} -> {change.after}", len(changes) / wanted)
                driven.rest(AFTER_SECONDS + rng.uniform(0.0, 1.0))
                driven.until(driven.keeps_up, "keeping up after a change")
            given = driven.drain()
        finally:
            driven.close()
        tell("comparing with the oracle", 1.0)
        verdict = judge(load, given, path, committed(driven.job))
        seen = _by_range(driven.arrivals, path, load)
        steady_ms, gaps = _gaps(seen, changes, calm_ns)
    above = [gap - steady_ms for gap in gaps]
    seconds = [(change.ended_ns - change.began_ns) / 1e9 for change in changes]
    return Outcome(
        "rescale",
        {
            "on": options.on,
            "part": options.part or "scale",
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": KEYS,
            **timing_of(options),
            "state_bytes": state_bytes,
            "seed": options.seed,
        },
        verdict.identical,
        {
            "changes": len(changes),
            "moved_share": {"min": round(min((c.moved_share for c in changes), default=0.0), 3)},
            "gap_ms": spread(above),
            "steady_p999_ms": round(steady_ms, 2),
            "change_seconds": spread(seconds),
            **verdict.figures(),
        },
        {"gap_ms": above, "change_seconds": seconds},
    )


def _change(driven: Driven, rng: Random) -> Change:
    job, operator = driven.job, rng.choice((FIRST, SECOND))
    before = _ranges(job, operator)
    count = rng.choice([parts for parts in PARTS if parts != len(before)])
    began_ns = time.monotonic_ns()
    job.scale(operator, count)
    ended_ns = time.monotonic_ns()
    after = _ranges(job, operator)
    moved = sum(part.size for part in after if part not in before)
    return Change(operator, began_ns, ended_ns, len(before), len(after), moved / BUCKETS)


def _upgrade(driven: Driven, flow: seep.Flow) -> Change:
    """The whole operator stands still from the last epoch of the old code to the first of the new one."""
    parts = len(_ranges(driven.job, FIRST))
    began_ns = time.monotonic_ns()
    driven.job.upgrade(flow)
    return Change(FIRST, began_ns, time.monotonic_ns(), parts, parts, 1.0)


def _ranges(job: Job, operator: str) -> list[KeyRange]:
    return [entry.key_range for entry in job.journal.live(operator)]


def _by_range(arrivals: list[Arrival], path: Path, load: Load) -> dict[str, list[npt.NDArray[np.int64]]]:
    """For each operator and each of its key ranges: when rows of it arrived (ns), for the first time."""
    range_of = {name: buckets_by_key(name, load.keys + load.cold_keys) * RANGES // BUCKETS for name in (FIRST, SECOND)}
    times: dict[str, list[list[int]]] = {name: [[] for _ in range(RANGES)] for name in range_of}
    known: set[tuple[int, int]] = set()
    for arrival in sorted(arrivals):
        place = (arrival.epoch, arrival.low)
        if arrival.low < 0 or place in known:
            continue
        known.add(place)
        keys = key_of_other(read_file(file_of(path, *place)).column("other").to_numpy())
        for name, ranges in range_of.items():
            for hit in np.unique(ranges[keys]):
                times[name][hit].append(arrival.at_ns)
    return {name: [np.array(one, np.int64) for one in found] for name, found in times.items()}


def _gaps(
    seen: dict[str, list[npt.NDArray[np.int64]]], changes: list[Change], calm_ns: int
) -> tuple[float, list[float]]:
    """The steady 99.9th percentile (ms), and of each change and key range the longest gap (ms)."""
    busy = [(change.began_ns, change.ended_ns + int(AFTER_SECONDS * 1e9)) for change in changes]
    steady: list[npt.NDArray[np.float64]] = []
    for times in (one for ranges in seen.values() for one in ranges):
        inside = np.zeros(max(len(times) - 1, 0), np.bool_)
        for began, ended in busy:
            inside |= (times[1:] >= began) & (times[:-1] <= ended)
        steady.append((np.diff(times) / 1e6)[~inside & (times[:-1] >= calm_ns)])
    gaps: list[float] = []
    for change, (began, ended) in zip(changes, busy, strict=True):
        for times in seen[change.operator]:
            touched = (times[1:] >= began) & (times[:-1] <= ended)
            if touched.any():
                gaps.append(float((np.diff(times)[touched]).max() / 1e6))
    every = np.concatenate(steady)
    return (float(np.percentile(every, 99.9)) if len(every) else 0.0), gaps
