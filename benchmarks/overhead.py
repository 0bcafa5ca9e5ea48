"""`overhead`: what checkpoints cost, and what metrics and a watching controller do. Throughput with against without, in
pairs of runs, taken in turns.

Both of a pair run one after the other, every second pair the other way round, so that slow drifts of the machine
cancel; the figure is the median of the pairs' ratios. Besides: the pause of one checkpoint by size of state and change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import seep
from benchmarks.arrivals import Arrival, ArrivalSink, Tail
from benchmarks.drive import committed, given_rows, scratch
from benchmarks.load import Load
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.pause import DIRTY_KEYS, STATE_KEYS, pauses_ms
from benchmarks.unsaved import UnsavedSink
from benchmarks.unwatched import UnwatchedSink
from benchmarks.verdict import judge
from seep.errors import Misuse, Retry
from seep.running import Job

KEYS = 100_000
WORKERS = 2
PARTS = 2
PAIRS = 8
SECONDS = 20.0
WARM_SECONDS = 4.0
STUCK_SECONDS = 60.0


@dataclass(frozen=True)
class Compared:
    """One thing that can be left out."""

    without: type[ArrivalSink]
    """Takes it out of the workers."""
    policy: str | None
    """Of the run with it: what makes the controller watch. The numbers of partitions are bounded to what they are."""


COMPARED = {"checkpoints": Compared(UnsavedSink, None), "metrics": Compared(UnwatchedSink, "rate")}
PREFIXES = {"checkpoints": "", "metrics": "metrics_"}
"""The older figures have kept their names."""


def run(options: Options, tell: Tell) -> Outcome:
    if options.part is not None and options.part not in COMPARED:
        raise Misuse(f"overhead has no part {options.part!r}; there are: {', '.join(COMPARED)}")
    pairs = PAIRS if options.kills is None else options.kills
    seconds = options.seconds or SECONDS
    parts = [options.part] if options.part else list(COMPARED)
    verified, figures, series = True, dict[str, Any](), dict[str, list[float]]()
    for place, part in enumerate(parts):

        def told(what: str, share: float, part: str = part, place: int = place) -> None:
            tell(f"{part}, {what}", (place + share) / len(parts))

        pace = _Pace(COMPARED[part], Load(KEYS, options.seed), seconds, options.on)
        ratios = pace.compare(pairs, told)
        verified = verified and pace.verified
        prefix = PREFIXES[part]
        figures |= {f"{prefix}{name}": value for name, value in pace.figures(ratios).items()}
        series[f"{prefix}overhead_ratio"] = ratios
    if "checkpoints" in parts:
        tell("pauses", 1.0)
        figures["pause_ms"] = pauses_ms(STATE_KEYS, DIRTY_KEYS)
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
        figures,
        series,
    )


class _Pace:
    """Rows a second with something and without it."""

    def __init__(self, compared: Compared, load: Load, seconds: float, on: str) -> None:
        self.compared, self.load, self.seconds, self.on = compared, load, seconds, on
        self.rates: dict[bool, list[float]] = {True: [], False: []}
        self.looks: dict[bool, int] = {True: 0, False: 0}
        """At the metrics, by the controller."""
        self.verified = True

    def compare(self, pairs: int, tell: Tell) -> list[float]:
        for number in range(pairs):
            for which in (True, False) if number % 2 == 0 else (False, True):
                tell(f"pair {number + 1} of {pairs}, {'with' if which else 'without'}", number / pairs)
                self._run(which)
        watched = self.compared.policy is not None
        # A controller that could not read anything would cost nothing.
        self.verified = self.verified and (self.looks[True] > 0) == watched and not self.looks[False]
        return [without / with_ for with_, without in zip(self.rates[True], self.rates[False], strict=True)]

    def figures(self, ratios: list[float]) -> dict[str, Any]:
        return {
            "overhead_ratio": round(median(ratios), 4),
            "overhead_ratios": spread(ratios),
            "rows_per_second": round(median(self.rates[True])),
            "rows_per_second_without": round(median(self.rates[False])),
            **({"looks": self.looks[True]} if self.compared.policy else {}),
        }

    def _run(self, which: bool) -> None:
        """Throughput of the whole flow, and whether what came out is right."""
        with scratch() as home:
            path = home / "arrivals"
            sink = (ArrivalSink if which else self.compared.without)(path)
            policy = self.compared.policy if which else None
            flow = self.load.flow("overhead", None, sink, "2s", PARTS, policy=policy)
            job = seep.start(flow, on=self.on, workers=WORKERS)
            try:
                tail = Tail(path)
                _first(job, tail)
                time.sleep(WARM_SECONDS)
                tail.news()
                time.sleep(self.seconds)
                seen = [arrival for arrival in tail.news() if arrival.newest >= 0]
                self.rates[which].append(_rate(seen))
                counts = job.watch.governor.counts
                self.looks[which] += sum(count for reason, count in counts.items() if reason != "metrics")
                job.stop(drain=True)
                job.wait(STUCK_SECONDS)
            finally:
                job.close()
            same = judge(self.load, given_rows(job), path, committed(job)).identical
            self.verified = self.verified and same


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
