"""`policies`: does the controller find the right number of partitions, from wherever it starts, and in how many steps?

A word count of three stages that sleeps while it works, from each of 6 × 6 numbers of partitions of the two that can be
scaled. The right numbers follow from the load and from how long they sleep, before anything runs. SEEP's threshold
beside it, from six of these. And in virtual time: an hour of a day with spikes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seep
from benchmarks.drive import given_rows, scratch
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.words import COUNT, SPLIT, WORDS, flow_of, verdict
from seep.control.decisions import Decision
from seep.control.governor import Guards
from seep.control.policies import UTILISATION
from seep.running import Job
from seep.runtime.readers import EVERY_SECONDS
from seep.runtime.watch import WINDOW_SECONDS
from seep.sim.loads import Plan, simulate
from seep.sim.traces import trace_of

RATE = 500.0
"""Sentences a second."""
STAGES = {SPLIT: 290.0, COUNT: 820.0}
"""Rows a second that one partition takes: 2.3 and 3.25 are needed at the wanted utilisation. Neither is near a whole
number: the work beside the sleep adds some hundredths, and a policy keeps what is only a little too much."""
ROWS = {SPLIT: 1, COUNT: WORDS}
"""That come to each for a sentence."""
STARTS = range(1, 7)
THRESHOLD_STARTS = 6
AT_ONCE = 1
"""Flows beside each other. They are asleep for most of their time, but a dozen workers that start take two cores for
some seconds, in which another flow would be measured, and decided on."""
HOLD_SECONDS = 6.0
"""Before it shrinks: a minute would only make the benchmark longer."""
LOOK_SECONDS = 0.1
NOISE = 0.1
DRAIN_SECONDS = 120.0
Start = tuple[int, int]


@dataclass(frozen=True)
class Patience:
    """How long without a change means that it is done, and when to give up."""

    quiet_seconds: float
    most_seconds: float


PATIENCE = {"rate": Patience(20.0, 80.0), "threshold": Patience(26.0, 200.0)}
"""A threshold adds one partition at a time, after two reports of 5 s each."""


@dataclass(frozen=True)
class Found:
    """What became of one start."""

    policy: str
    start: Start
    end: Start
    steps: int
    """Changes of the operator that was changed most often: to grow and to shrink are not decided at the same time,
    since what is too much is only given back after a while."""
    off: int
    """Partitions too many or too few, where that is most."""
    wrong: int
    """Rows, by the oracle."""


def run(options: Options, tell: Tell) -> Outcome:
    rate = options.rate or RATE
    right = right_sizes(rate)
    starts = _sample([(a, b) for a in STARTS for b in STARTS], options.starts)
    plans = [("rate", start) for start in starts]
    plans += [("threshold", start) for start in _sample(starts, THRESHOLD_STARTS)]
    found = _all(plans, rate, right, tell)
    tell("an hour in virtual time", 1.0)
    hour = simulate(Plan(trace_of("day", options.seed)))
    noisy = simulate(Plan(trace_of("curve", options.seed, NOISE), noise=NOISE, seed=options.seed))
    noisy_load = simulate(Plan(trace_of("curve", options.seed, NOISE), seed=options.seed))
    noisy_metrics = simulate(Plan(trace_of("curve", options.seed), noise=NOISE, seed=options.seed))
    threshold = simulate(Plan(trace_of("day", options.seed), policy="threshold"))
    lost = sum(one.wrong for one in found)
    by_policy = {name: [one for one in found if one.policy == name] for name in PATIENCE}
    return Outcome(
        "policies",
        {
            "on": "local",
            "rate_sentences_per_second": rate,
            "right": right,
            "starts": len(starts),
            "threshold_starts": len(by_policy["threshold"]),
            "flows_at_once": AT_ONCE,
            "seed": options.seed,
        },
        lost == 0,
        {
            **figures(by_policy["rate"]),
            **{f"threshold_{name}": value for name, value in figures(by_policy["threshold"]).items()},
            "cost_ratio": round(hour.cost_ratio, 3),
            "missed_share": round(hour.missed_share, 4),
            "noisy_reversals": noisy.reversals,
            "noisy_load_reversals": noisy_load.reversals,
            "noisy_metrics_reversals": noisy_metrics.reversals,
            "threshold_cost_ratio": round(threshold.cost_ratio, 3),
            "threshold_missed_share": round(threshold.missed_share, 4),
            "wrong": lost,
        },
        {
            "steps": [float(one.steps) for one in by_policy["rate"]],
            "threshold_steps": [float(one.steps) for one in by_policy["threshold"]],
        },
        notes=[f"{one.policy}: {one.start} -> {one.end} in {one.steps}" for one in found],
    )


def right_sizes(rate: float) -> dict[str, int]:
    """
    >>> right_sizes(500.0)
    {'split': 3, 'count': 4}
    """
    return {name: math.ceil(rate * ROWS[name] / UTILISATION / one) for name, one in STAGES.items()}


def figures(runs: Sequence[Found]) -> dict[str, Any]:
    """
    >>> one = Found("rate", (1, 1), (3, 4), 1, 0, 0)
    >>> figures([one, Found("rate", (2, 6), (3, 5), 3, 1, 0)])
    {'one_step_share': 0.5, 'right_share': 0.5, 'off_by_one_share': 0.5, 'most_steps': 3}
    """
    return {
        "one_step_share": round(sum(one.off == 0 and one.steps <= 1 for one in runs) / len(runs), 3),
        "right_share": round(sum(one.off == 0 for one in runs) / len(runs), 3),
        "off_by_one_share": round(sum(one.off == 1 for one in runs) / len(runs), 3),
        "most_steps": max(one.steps for one in runs),
    }


def _sample(starts: Sequence[Start], count: int | None) -> list[Start]:
    """So many of them, from all over.

    >>> _sample([(1, 1), (1, 2), (2, 1), (2, 2)], 2), _sample([(1, 1)], 6)
    ([(1, 1), (2, 2)], [(1, 1)])
    """
    if count is None or count >= len(starts):
        return list(starts)
    return [starts[round(place * (len(starts) - 1) / max(1, count - 1))] for place in range(count)]


def _all(plans: Sequence[tuple[str, Start]], rate: float, right: dict[str, int], tell: Tell) -> list[Found]:
    found: list[Found] = []
    with scratch() as home, ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(_one, policy, start, rate, right, home) for policy, start in plans]
        try:
            for done in as_completed(running):
                one = done.result()
                found.append(one)
                tell(f"{one.policy}: {one.start} -> {one.end} in {one.steps} steps", len(found) / len(plans))
        finally:
            # When one has failed, those that have not begun need not.
            pool.shutdown(wait=False, cancel_futures=True)
    return sorted(found, key=lambda one: (one.policy, one.start))


def _one(policy: str, start: Start, rate: float, right: dict[str, int], home: Path) -> Found:
    name = f"{policy}-{start[0]}-{start[1]}"
    path = home / f"arrivals-{name}"
    flow = flow_of(name, rate, STAGES, dict(zip(STAGES, start, strict=True)), policy, path)
    job = seep.start(flow, workers=sum(start) + 2)
    job.watch.governor.guards = Guards(
        shrink_seconds=HOLD_SECONDS, turn_seconds=HOLD_SECONDS, settle_seconds=WINDOW_SECONDS + EVERY_SECONDS
    )
    try:
        _rest(job, PATIENCE[policy])
        made = [decision for decision in job.watch.decisions() if decision.changes]
        end = {name: len(job.journal.live(name)) for name in STAGES}
        job.stop(drain=True)
        job.wait(DRAIN_SECONDS)
    finally:
        job.close()
    books = verdict(path, given_rows(job))
    return Found(
        policy,
        start,
        (end[SPLIT], end[COUNT]),
        max(_steps(made, name) for name in STAGES),
        max(abs(end[name] - right[name]) for name in right),
        books["lost"] + books["duplicated"] + books["reordered"] + (not books["rows_out"]),
    )


def _rest(job: Job, patience: Patience) -> None:
    """Until it has not changed anything for a while, nor wanted to."""
    began = changed = time.monotonic()
    before = -1
    while time.monotonic() - changed < patience.quiet_seconds and time.monotonic() - began < patience.most_seconds:
        if job.journal.version != before or _is_pending(job.watch.decisions()):
            before = job.journal.version
            changed = time.monotonic()
        time.sleep(LOOK_SECONDS)


def _is_pending(decisions: Sequence[Decision]) -> bool:
    """Is nothing decided yet, or something held back? A flow of a dozen workers takes its time to start."""
    latest = {decision.operator: decision for decision in decisions if decision.operator}
    return not latest or any(one.held and one.after != one.before for one in latest.values())


def _steps(made: Sequence[Decision], name: str) -> int:
    return sum(decision.operator == name for decision in made)
