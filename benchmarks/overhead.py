"""`overhead`: what checkpoints cost. Throughput with one every 2 s against none, in pairs of runs, taken in turns.

Both of a pair run one after the other, every second pair the other way round, so that slow drifts of the machine
cancel; the figure is the median of the pairs' ratios. Besides: the pause of one checkpoint by size of state and change.
"""

from __future__ import annotations

import time
from statistics import median

import seep
from benchmarks.arrivals import Arrival, ArrivalSink, Tail
from benchmarks.drive import committed, given_rows, scratch
from benchmarks.load import Load
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.pause import DIRTY_KEYS, STATE_KEYS, pauses_ms
from benchmarks.unsaved import UnsavedSink
from benchmarks.verdict import judge
from seep.errors import Retry
from seep.running import Job

KEYS = 100_000
WORKERS = 2
PARTS = 2
PAIRS = 8
SECONDS = 20.0
WARM_SECONDS = 4.0
STUCK_SECONDS = 60.0


def run(options: Options, tell: Tell) -> Outcome:
    pairs = PAIRS if options.kills is None else options.kills
    seconds = options.seconds or SECONDS
    load = Load(KEYS, options.seed)
    saved: list[float] = []
    unsaved: list[float] = []
    verified = True
    for number in range(pairs):
        for which in (True, False) if number % 2 == 0 else (False, True):
            tell(f"pair {number + 1} of {pairs}, {'with' if which else 'without'}", number / pairs)
            rate, same = _throughput(load, which, seconds, options.on)
            verified = verified and same
            (saved if which else unsaved).append(rate)
    tell("pauses", 1.0)
    ratios = [without / with_ for with_, without in zip(saved, unsaved, strict=True)]
    return Outcome(
        "overhead",
        {
            "on": options.on,
            "workers": WORKERS,
            "keys": KEYS,
            "pairs": pairs,
            "seconds": seconds,
            "checkpoint_ms": 2000,
            "seed": options.seed,
        },
        verified,
        {
            "overhead_ratio": round(median(ratios), 4) if ratios else None,
            "overhead_ratios": spread(ratios),
            "rows_per_second": round(median(saved)) if saved else None,
            "rows_per_second_without": round(median(unsaved)) if unsaved else None,
            "pause_ms": pauses_ms(STATE_KEYS, DIRTY_KEYS),
        },
        {"overhead_ratio": ratios},
    )


def _throughput(load: Load, saved: bool, seconds: float, on: str) -> tuple[float, bool]:
    """Rows a second through the whole flow, and whether what came out is right."""
    with scratch() as home:
        path = home / "arrivals"
        sink = (ArrivalSink if saved else UnsavedSink)(path)
        job = seep.start(load.flow("overhead", None, sink, "2s", PARTS), on=on, workers=WORKERS)
        try:
            tail = Tail(path)
            _first(job, tail)
            time.sleep(WARM_SECONDS)
            tail.news()
            time.sleep(seconds)
            seen = [arrival for arrival in tail.news() if arrival.newest >= 0]
            rate = _rate(seen)
            job.stop(drain=True)
            job.wait(STUCK_SECONDS)
        finally:
            job.close()
        return rate, judge(load, given_rows(job), path, committed(job)).identical


def _first(job: Job, tail: Tail) -> None:
    deadline = time.monotonic() + STUCK_SECONDS
    while not tail.news():
        if time.monotonic() > deadline or job.host.outcome:
            raise Retry(f"overhead: no row arrived; the flow has {job.host.outcome or 'not ended'} {job.host.report}")
        time.sleep(0.05)


def _rate(seen: list[Arrival]) -> float:
    if len(seen) < 2:
        raise Retry("overhead: too few arrivals; give it more seconds")
    return (seen[-1].newest - seen[0].newest) / (seen[-1].at_ns - seen[0].at_ns) * 1e9
