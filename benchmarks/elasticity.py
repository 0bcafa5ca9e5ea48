"""`elasticity`: the load triples; how long until results come as fast as before.

One sleeper that the controller may scale. Its latency is that of rows: from when the load released them to their
arrival at the sink. Printed apart: until the controller decided, until the change was committed, until what had piled
up meanwhile was worked off.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import seep
from benchmarks.arrivals import Tail, epochs_of, read_file
from benchmarks.drive import last_cuts, scratch
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.sleepers import Stepped, flow_of, verdict
from seep.connectors.generator import BLOCK_ROWS, SPLITS
from seep.running import Job

RATE = 1_000.0
FACTOR = 3.0
ROWS_PER_SECOND = 700.0
"""Of one partition: two are right before the step, six after it."""
BEFORE_SECONDS, DURING_SECONDS = 20.0, 40.0


def run(options: Options, tell: Tell) -> Outcome:
    rate, policy = options.rate or RATE, options.policy or "rate"
    during = options.seconds or DURING_SECONDS
    source = Stepped(rate, FACTOR, (BEFORE_SECONDS, BEFORE_SECONDS + during))
    with scratch() as home:
        path = home / "arrivals"
        flow = flow_of("elasticity", source, {"work": ROWS_PER_SECOND}, {"work": 2}, policy, path)
        job = seep.start(flow, on=options.on, workers=4)
        try:
            tell("before the step", 0.1)
            began = _until_begun(job)
            step = began + BEFORE_SECONDS
            committed: list[tuple[float, int]] = []
            while time.time() < step + during:
                count = len(job.journal.live("work"))
                if not committed or committed[-1][1] != count:
                    committed.append((time.time(), count))
                tell(f"{count} partitions", min(0.9, (time.time() - began) / (BEFORE_SECONDS + during)))
                time.sleep(0.02)
            decided = [d for d in job.watch.decisions() if d.changes and d.at > step]
            job.stop(drain=True)
            job.wait(120.0)
        finally:
            job.close()
        books = verdict(path)
        seconds, latencies = _latencies(path, source, began)
        arrived = _gaps(path)
    base = _p99(latencies[(seconds >= BEFORE_SECONDS - 10) & (seconds < BEFORE_SECONDS)])
    settle = _settled(seconds, latencies, base, BEFORE_SECONDS, during)
    changes = [at for at, _ in committed if at > step]
    return Outcome(
        "elasticity",
        {
            "on": options.on,
            "policy": policy if isinstance(policy, str) else type(policy).__name__,
            "rate_rows_per_second": rate,
            "factor": FACTOR,
            "seed": options.seed,
        },
        not (books["lost"] or books["duplicated"] or books["reordered"]),
        {
            "settle_seconds": round(settle, 2),
            "decision_seconds": round(decided[0].at - step, 2) if decided else -1,
            "change_seconds": round(changes[0] - decided[0].at, 2) if decided and changes else -1,
            "partitions": [count for _, count in committed],
            "p99_before_ms": round(base, 1),
            "p99_highest_ms": round(_highest(seconds, latencies, BEFORE_SECONDS), 1),
            "longest_gap_ms": round(arrived, 1),
            **books,
        },
    )


def _until_begun(job: Job) -> float:
    """When the source gave its first row, on the wall clock."""
    deadline = time.monotonic() + 120.0
    while True:
        begun = [known[1][1] for cut in last_cuts(job) for known in cut["splits"].values() if known[1] is not None]
        if begun:
            return float(min(begun)) / 1000
        if time.monotonic() > deadline:
            raise seep.Retry("elasticity: the flow has not begun within 120 s")
        time.sleep(0.01)


Floats = np.ndarray[Any, np.dtype[np.float64]]


def _latencies(path: Path, source: Stepped, began: float) -> tuple[Floats, Floats]:
    """Of every row: when it was released (seconds from the beginning) and how long it took (ms)."""
    skew = time.time() - time.monotonic()
    grid = np.arange(0.0, 600.0, 0.001)
    released = np.array([source.released(second) for second in grid])
    at = {(a.epoch, a.low): a.at_ns / 1e9 + skew - began for a in reversed(Tail(path).news())}
    when, took = [], []
    for epoch, low, file in epochs_of(path):
        numbers = read_file(file).column("newest").to_numpy()
        block, inside = np.divmod(numbers, BLOCK_ROWS)
        place = block // SPLITS * BLOCK_ROWS + inside  # inside its split
        seconds = np.interp(place * float(SPLITS), released, grid)
        when.append(seconds)
        took.append((at[epoch, low] - seconds) * 1000)
    return np.concatenate(when), np.concatenate(took)


def _gaps(path: Path) -> float:
    """The longest time without an arrival, ms."""
    times = sorted(a.at_ns for a in Tail(path).news() if a.low >= 0)
    return float(np.diff(times).max()) / 1e6 if len(times) > 1 else 0.0


def _p99(values: Floats) -> float:
    return float(np.percentile(values, 99)) if len(values) else 0.0


def _settled(seconds: Floats, latencies: Floats, base: float, step: float, during: float) -> float:
    """Seconds after the step from which on every second's p99 is below twice what it was before; -1: never."""
    last = step
    for second in np.arange(step, step + during - 1):
        chosen = latencies[(seconds >= second) & (seconds < second + 1)]
        if len(chosen) and _p99(chosen) > 2 * base:
            last = float(second) + 1
    return last - step if last < step + during - 2 else -1.0


def _highest(seconds: Floats, latencies: Floats, step: float) -> float:
    return max((_p99(latencies[(seconds >= s) & (seconds < s + 1)]) for s in np.arange(step, step + 30)), default=0.0)
