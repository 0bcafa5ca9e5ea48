"""``python -m seep.sim --seeds 20000 --start 1``: many schedules, on every core, and what they hit.

Prints each violation with its seed (the same seed replays it) and, at the end, how often each named step of the
protocol was interrupted. Exit code 1 when anything was violated. Every 100th seed runs twice: same seed, same bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count

from seep.sim.schedule import Outcome, run_schedule

CHUNK = 50


def run_chunk(start: int, count: int) -> list[Outcome]:
    outcomes = []
    for seed in range(start, start + count):
        outcome = run_schedule(seed)
        if seed % 100 == 0 and run_schedule(seed).digest != outcome.digest:
            outcome.violation = outcome.violation or "the same seed gave other bytes"
        outcomes.append(outcome)
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m seep.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--start", type=int, default=1)
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    starts = range(options.start, options.start + options.seeds, CHUNK)
    last = options.start + options.seeds
    with ProcessPoolExecutor(options.processes) as pool:
        chunks = pool.map(run_chunk, starts, [min(CHUNK, last - s) for s in starts])
        for chunk in chunks:
            outcomes.extend(chunk)
            for outcome in chunk:
                if outcome.violation:
                    print(f"\nVIOLATION seed {outcome.seed} ({outcome.shape}): {outcome.violation}")
            if sys.stdout.isatty():
                print(f"\r{len(outcomes)} of {options.seeds} schedules", end="", flush=True)
    print(summary(outcomes, time.monotonic() - began, options.processes))
    return 1 if any(outcome.violation for outcome in outcomes) else 0


def summary(outcomes: list[Outcome], seconds: float, processes: int) -> str:
    interrupted: Counter[str] = Counter()
    for outcome in outcomes:
        interrupted.update(outcome.interrupted)
    count = max(1, len(outcomes))
    violations = sum(bool(outcome.violation) for outcome in outcomes)
    busy = sum(outcome.messages >= 1000 and outcome.hits >= 5 for outcome in outcomes)
    lines = [
        f"\n{len(outcomes)} schedules in {seconds:.1f} s: {60 * count / seconds / processes:.0f} a minute on each of"
        f" {processes} cores, {violations} violations",
        f"messages handled: mean {sum(o.messages for o in outcomes) / count:.0f}, least"
        f" {min((o.messages for o in outcomes), default=0)}; faults that hit: mean"
        f" {sum(o.hits for o in outcomes) / count:.1f}; {100 * busy / count:.0f} % with at least 1,000 and 5;"
        f" a completed Replace in {100 * sum(o.replaces > 0 for o in outcomes) / count:.0f} %",
        "interrupted steps:",
        *(f"  {times:8d}  {step}" for step, times in sorted(interrupted.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
