"""`policies`: does the controller find the right number of partitions, from wherever it starts, and in how many steps?

Two sleepers, one behind the other, from each of 6 × 6 numbers of partitions. The right numbers follow from the load and
from how long they sleep, before anything runs. And in virtual time: an hour of a day with spikes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import seep
from benchmarks.drive import scratch
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.sleepers import Stepped, flow_of, verdict
from seep.control.governor import Decision, Guards
from seep.control.policies import UTILISATION
from seep.running import Job
from seep.sim.loads import Plan, simulate
from seep.sim.traces import trace_of

RATE = 2_000.0
RATES = {"split": 808.0, "count": 620.0}
"""Rows a second that one partition takes: 3.3 and 4.3 are needed at the wanted utilisation."""
STARTS = range(1, 7)
HOLD_SECONDS = 6.0
"""Before it shrinks: a minute would only make the benchmark longer."""
LOOK_SECONDS, QUIET_SECONDS, MOST_SECONDS = 0.1, 14.0, 60.0


def run(options: Options, tell: Tell) -> Outcome:
    rate = options.rate or RATE
    right = {name: math.ceil(rate / UTILISATION / one) for name, one in RATES.items()}
    starts = [(a, b) for a in STARTS for b in STARTS]
    if options.kills is not None:
        starts = starts[:: max(1, len(starts) // options.kills)][: options.kills]
    found: dict[str, list[dict[str, Any]]] = {"rate": []}
    lost = 0
    for number, start in enumerate(starts):
        tell(f"from {start[0]} and {start[1]} partitions", number / len(starts))
        with scratch() as home:
            made, wrong = _one(dict(zip(RATES, start, strict=True)), rate, right, home)
        found["rate"].append(made)
        lost += wrong
    tell("an hour in virtual time", 1.0)
    hour = simulate(Plan(trace_of("day", options.seed)))
    noisy = simulate(Plan(trace_of("curve", options.seed, 0.1), noise=0.1, seed=options.seed))
    threshold = simulate(Plan(trace_of("day", options.seed), policy="threshold"))
    runs = found["rate"]
    return Outcome(
        "policies",
        {"on": "local", "rate_rows_per_second": rate, "right": right, "starts": len(starts), "seed": options.seed},
        lost == 0,
        {
            "one_step_share": round(sum(one["right"] and one["steps"] <= 1 for one in runs) / len(runs), 3),
            "right_share": round(sum(one["right"] for one in runs) / len(runs), 3),
            "off_by_one_share": round(sum(one["off"] == 1 for one in runs) / len(runs), 3),
            "most_steps": max(one["steps"] for one in runs),
            "cost_ratio": round(hour.cost_ratio, 3),
            "missed_share": round(hour.missed_share, 4),
            "noisy_reversals": noisy.reversals,
            "threshold_cost_ratio": round(threshold.cost_ratio, 3),
            "threshold_missed_share": round(threshold.missed_share, 4),
            "wrong": lost,
        },
        notes=[f"{one['start']} -> {one['end']} in {one['steps']}" for one in runs],
    )


def _one(start: dict[str, int], rate: float, right: dict[str, int], home: Path) -> tuple[dict[str, Any], int]:
    path = home / "arrivals"
    flow = flow_of("policies", Stepped(rate), RATES, start, "rate", path)
    job = seep.start(flow, workers=sum(start.values()) + 2)
    guards = Guards(shrink_seconds=HOLD_SECONDS, turn_seconds=HOLD_SECONDS, settle_seconds=6.0)
    job.watch.governor.guards = guards
    try:
        _rest(job)
        made = [decision for decision in job.watch.decisions() if decision.changes]
        end = {name: len(job.journal.live(name)) for name in RATES}
        job.stop(drain=True)
        job.wait(120.0)
    finally:
        job.close()
    books = verdict(path)
    off = max(abs(end[name] - right[name]) for name in right)
    steps = max((_steps(made, name) for name in RATES), default=0)
    wrong = books["lost"] + books["duplicated"] + books["reordered"]
    return {"start": start, "end": end, "steps": steps, "right": end == right, "off": off}, wrong


def _rest(job: Job) -> None:
    """Until it has not changed anything for a while."""
    began = changed = time.monotonic()
    before = -1
    while time.monotonic() - changed < QUIET_SECONDS and time.monotonic() - began < MOST_SECONDS:
        if job.journal.version != before:
            before = job.journal.version
            changed = time.monotonic()
        time.sleep(LOOK_SECONDS)


def _steps(made: Sequence[Decision], name: str) -> int:
    return sum(decision.operator == name for decision in made)
