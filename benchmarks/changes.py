"""seep while it is changed, to be put beside another engine: an operator rescaled, a worker killed, under the load of
`benchmarks.load` at the other's rate and checkpoint interval.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.arrivals import ArrivalSink, file_of, read_file
from benchmarks.drive import Driven, committed, scratch
from benchmarks.load import FIRST, Load
from benchmarks.outcome import Tell
from benchmarks.silence import Change, Floats, Moments, around
from benchmarks.verdict import judge

RATE = 50_000.0
KEYS = 100_000
WORKERS = 4
PARTS = (2, 4)
CHECKPOINT = "5s"
WARM_SECONDS = 10.0
AFTER_SECONDS = 10.0


def measure(load: Load, rate: float, on: str, tell: Tell) -> dict[str, Any]:
    """What each change did to the output, and whether it was right all along."""
    with scratch() as home:
        path = home / "arrivals"
        flow = load.flow("changes", rate, ArrivalSink(path), CHECKPOINT, PARTS[0])
        driven = Driven(flow, path, rate, on, WORKERS)
        try:
            driven.steady()
            driven.rest(WARM_SECONDS)
            tell(f"{FIRST}: {PARTS[0]} -> {PARTS[1]}", 0.3)
            made = [_rescale(driven)]
            driven.until(driven.keeps_up, "keeping up after the change")
            driven.rest(WARM_SECONDS)
            tell("kill -9 of a worker", 0.6)
            made.append(_kill(driven, Random(load.seed)))
            driven.until(driven.keeps_up, "keeping up after the kill")
            given = driven.drain()
        finally:
            driven.close()
        verdict = judge(load, given, path, committed(driven.job))
        at_ns, lag_ms = _rows(driven, path)
    found = {change.what: around(at_ns, lag_ms, change) for change in made}
    return {**found, **verdict.figures(), "verified": verdict.identical}


def _rescale(driven: Driven) -> Change:
    at_ns = time.monotonic_ns()
    driven.job.scale(FIRST, PARTS[1])
    return _after(driven, "rescale", at_ns)


def _kill(driven: Driven, rng: Random) -> Change:
    workers = driven.by_worker()
    # One that runs a part of the operator that was scaled: one with a sink alone would be an easy loss.
    worker = rng.choice(sorted(w for w, those in workers.items() if any(e.partition.operator == FIRST for e in those)))
    at_ns = time.monotonic_ns()
    driven.kill(worker)
    return _after(driven, "kill", at_ns)


def _after(driven: Driven, what: str, at_ns: int) -> Change:
    driven.rest(AFTER_SECONDS)
    return Change(what, at_ns, time.monotonic_ns())


def _rows(driven: Driven, path: Path) -> tuple[Moments, Floats]:
    """Of every row at the sink: when it arrived, and its lag. An epoch published twice counts when it came first."""
    moments: dict[tuple[int, int], int] = {}
    for arrival in sorted(driven.arrivals):
        if arrival.low >= 0:
            moments.setdefault((arrival.epoch, arrival.low), arrival.at_ns)
    at_ns, lag_ms = [], []
    for place, moment in moments.items():
        newest = read_file(file_of(path, *place)).column("newest").to_numpy()
        at_ns.append(np.full(len(newest), moment, np.int64))
        lag_ms.append((moment - driven.released_ns(newest)) / 1e6)
    return np.concatenate(at_ns), np.concatenate(lag_ms)
