"""`elasticity`: the load triples; how long until results come as fast as before.

One sleeper that the controller may scale. Its latency is that of rows: from when the load released them to their
arrival at the sink. Printed apart: until the controller decided, until the change was committed, until what had piled
up meanwhile was worked off. With a peer: what a change that is asked for and a kill do to the output of each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import seep
from benchmarks import changes
from benchmarks.arrivals import Tail, epochs_of, read_file
from benchmarks.drive import given_rows, last_cuts, scratch
from benchmarks.load import Load
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.sleepers import Stepped, flow_of, verdict
from seep.connectors.generator import BLOCK_ROWS, SPLITS
from seep.control.decisions import Decision
from seep.running import Job

RATE = 1_000.0
FACTOR = 3.0
ROWS_PER_SECOND = 700.0
"""Of one partition: two are right before the step, six after it."""
BEFORE_SECONDS, DURING_SECONDS = 20.0, 40.0
STARTING_SECONDS = 5.0
"""At the beginning: what is usual is looked up after it."""
AFTER_SECONDS = 0.5
"""The old partitions are let go after the commit: what that costs belongs to the change, too."""
STUCK_SECONDS = 120.0
WORKERS = 4
OPERATOR = "work"
POLICY = "rate"


def run(options: Options, tell: Tell) -> Outcome:
    policy = options.policy or POLICY
    step = _step(options, tell)
    series, notes = step.pop("series"), step.pop("notes")
    peers: dict[str, Any] = {}
    if options.peers:
        peers = _compared(options, tell)
    return Outcome(
        "elasticity",
        {
            "on": options.on,
            "policy": policy if isinstance(policy, str) else type(policy).__name__,
            "rate_rows_per_second": options.rate or RATE,
            "factor": FACTOR,
            "seed": options.seed,
            **({"compared_rate_rows_per_second": changes.RATE, "compared_keys": changes.KEYS} if peers else {}),
        },
        step.pop("verified") and (not peers or peers["changes"]["verified"]),
        {**step, **peers},
        series,
        notes,
    )


def _compared(options: Options, tell: Tell) -> dict[str, Any]:
    """Figures of seep under the same load, and of the peers."""
    from benchmarks.peers import flinkchanges

    load = Load(changes.KEYS, options.seed)
    mine = changes.measure(load, changes.RATE, options.on, tell)
    with scratch() as home:
        return {"changes": mine, "peers": {"flink": flinkchanges.measure(load, changes.RATE, home, tell)}}


@dataclass(frozen=True)
class Seen:
    """What the driver has noted while the load stepped up; seconds on the wall clock."""

    step: float
    committed: Sequence[tuple[float, int]]
    """When the operator was first seen with so many partitions."""
    decided: Sequence[Decision]

    @property
    def changing(self) -> tuple[float, float]:
        """From the first decision until the last change was over."""
        after = [at for at, _ in self.committed if at > self.step]
        return (self.decided[0].at, after[-1] + AFTER_SECONDS) if self.decided and after else (self.step, self.step)


def _step(options: Options, tell: Tell) -> dict[str, Any]:
    rate, during = options.rate or RATE, options.seconds or DURING_SECONDS
    policy = options.policy or POLICY
    source = Stepped(rate, FACTOR, (BEFORE_SECONDS, BEFORE_SECONDS + during))
    with scratch() as home:
        path = home / "arrivals"
        flow = flow_of("elasticity", source, {OPERATOR: ROWS_PER_SECOND}, {OPERATOR: 2}, policy, path)
        job = seep.start(flow, on=options.on, workers=WORKERS)
        try:
            tell("before the step", 0.1)
            began = _until_begun(job)
            seen = _watch(job, began, during, tell)
            job.stop(drain=True)
            job.wait(STUCK_SECONDS)
        finally:
            job.close()
        books = verdict(path, given_rows(job))
        seconds, latencies = _latencies(path, source, began)
        steady_ms, gap_ms = _gaps(path, began, seen)
    base = _p99(latencies[(seconds >= BEFORE_SECONDS - 10) & (seconds < BEFORE_SECONDS)])
    course = [_p99(latencies[(seconds >= s) & (seconds < s + 1)]) for s in np.arange(0.0, BEFORE_SECONDS + during)]
    settle = settled(course[int(BEFORE_SECONDS) :], base)
    after = [at for at, _ in seen.committed if at > seen.step]
    decision = seen.decided[0].at - seen.step if seen.decided else -1.0
    change = after[0] - seen.decided[0].at if seen.decided and after else -1.0
    whole = min(settle, decision, change) >= 0
    return {
        "verified": books["rows_out"] > 0 and not (books["lost"] or books["duplicated"] or books["reordered"]),
        "settle_seconds": round(settle, 2),
        "decision_seconds": round(decision, 2),
        "change_seconds": round(change, 2),
        "drain_seconds": round(max(0.0, settle - decision - change), 2) if whole else -1.0,
        "partitions": [count for _, count in seen.committed],
        "p99_before_ms": round(base, 1),
        "p99_highest_ms": round(max(course[int(BEFORE_SECONDS) :]), 1),
        "gap_ms": round(gap_ms - steady_ms, 1),
        "longest_gap_ms": round(gap_ms, 1),
        "steady_p999_ms": round(steady_ms, 1),
        **books,
        "series": {"p99_ms": course},
        "notes": [f"{d.at - seen.step:.2f} s after the step: {d.before} -> {d.after}, {d.why}" for d in seen.decided],
    }


def _watch(job: Job, began: float, during: float, tell: Tell) -> Seen:
    """Until the load has been high for so long."""
    step = began + BEFORE_SECONDS
    committed: list[tuple[float, int]] = []
    while time.time() < step + during:
        if job.host.outcome:
            raise seep.Retry(f"elasticity: the flow has {job.host.outcome}: {job.host.report}")
        count = len(job.journal.live(OPERATOR))
        if not committed or committed[-1][1] != count:
            committed.append((time.time(), count))
        tell(f"{count} partitions", min(0.9, (time.time() - began) / (BEFORE_SECONDS + during)))
        time.sleep(0.02)
    return Seen(step, committed, [d for d in job.watch.decisions() if d.changes and d.at > step])


def _until_begun(job: Job) -> float:
    """When the source gave its first row, on the wall clock."""
    deadline = time.monotonic() + STUCK_SECONDS
    while True:
        begun = [known[1][1] for cut in last_cuts(job) for known in cut["splits"].values() if known[1] is not None]
        if begun:
            return float(min(begun)) / 1000
        if time.monotonic() > deadline:
            raise seep.Retry(f"elasticity: the flow has not begun within {STUCK_SECONDS:.0f} s")
        time.sleep(0.01)


Floats = np.ndarray[Any, np.dtype[np.float64]]


def _latencies(path: Path, source: Stepped, began: float) -> tuple[Floats, Floats]:
    """Of every row: when it arrived (seconds from the beginning) and how long it took (ms)."""
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
        when.append(np.full(len(seconds), at[epoch, low]))
        took.append((at[epoch, low] - seconds) * 1000)
    return np.concatenate(when), np.concatenate(took)


def _gaps(path: Path, began: float, seen: Seen) -> tuple[float, float]:
    """Between two arrivals (ms): the 99.9th percentile before the step, and the longest while something was changed."""
    skew = time.time() - time.monotonic()
    times = np.array(sorted(a.at_ns for a in Tail(path).news() if a.low >= 0)) / 1e9 + skew
    gaps, begins, ends = np.diff(times) * 1000, times[:-1], times[1:]
    calm = gaps[(begins >= began + STARTING_SECONDS) & (ends <= seen.step)]
    first, last = seen.changing
    changed = gaps[(ends >= first) & (begins <= last)]
    return float(np.percentile(calm, 99.9)) if len(calm) else 0.0, float(changed.max()) if len(changed) else 0.0


def _p99(values: Floats) -> float:
    return float(np.percentile(values, 99)) if len(values) else 0.0


def settled(course: Sequence[float], base: float) -> float:
    """Seconds from which on every second's p99 is below twice what it was before; -1: not for at least two.

    >>> settled([9.0, 30.0, 25.0, 19.0, 12.0, 11.0], 10.0), settled([9.0, 9.0, 30.0, 30.0], 10.0)
    (3.0, -1.0)
    """
    late = [second for second, p99 in enumerate(course) if p99 > 2 * base]
    found = late[-1] + 1 if late else 0
    return float(found) if found <= len(course) - 2 else -1.0
