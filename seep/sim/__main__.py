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

from seep.sim.schedule import HITS, MESSAGES, Outcome, run_schedule

CHUNK = 50


def run_chunk(start: int, count: int) -> tuple[list[Outcome], float]:
    """What came of these seeds, and the seconds of a core that they took."""
    outcomes, began = [], time.process_time()
    for seed in range(start, start + count):
        outcome = run_schedule(seed)
        if seed % 100 == 0 and run_schedule(seed).digest != outcome.digest:
            outcome.violation = outcome.violation or "the same seed gave other bytes"
        outcomes.append(outcome)
    return outcomes, time.process_time() - began


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m seep.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--start", type=int, default=1)
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    core_seconds = 0.0
    starts = range(options.start, options.start + options.seeds, CHUNK)
    last = options.start + options.seeds
    with ProcessPoolExecutor(options.processes) as pool:
        chunks = pool.map(run_chunk, starts, [min(CHUNK, last - s) for s in starts])
        for chunk, chunk_seconds in chunks:
            outcomes.extend(chunk)
            core_seconds += chunk_seconds
            for outcome in chunk:
                if outcome.violation:
                    print(f"\nVIOLATION seed {outcome.seed} ({outcome.shape}): {outcome.violation}")
            if sys.stdout.isatty():
                print(f"\r{len(outcomes)} of {options.seeds} schedules", end="", flush=True)
    print(summary(outcomes, time.monotonic() - began, core_seconds))
    return 1 if any(outcome.violation for outcome in outcomes) else 0


def summary(outcomes: list[Outcome], seconds: float, core_seconds: float) -> str:
    interrupted: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        interrupted.update(outcome.interrupted)
        kinds.update(outcome.kinds)
    count = max(1, len(outcomes))
    violations = sum(bool(outcome.violation) for outcome in outcomes)
    busy = sum(outcome.messages >= MESSAGES and outcome.hits >= HITS for outcome in outcomes)
    lines = [
        f"\n{len(outcomes)} schedules in {seconds:.1f} s: {60 * count / core_seconds:.0f} in a minute of a core's time,"
        f" {violations} violations",
        f"messages handled: mean {sum(o.messages for o in outcomes) / count:.0f}, least"
        f" {min((o.messages for o in outcomes), default=0)}; faults that hit: mean"
        f" {sum(o.hits for o in outcomes) / count:.1f}, least {min((o.hits for o in outcomes), default=0)};"
        f" {100 * busy / count:.4g} % with at least {MESSAGES:,} and {HITS}",
        f"a completed Replace in {100 * sum(o.replaces > 0 for o in outcomes) / count:.0f} %; through columns and wire:"
        f" {sum(o.columns for o in outcomes)}; stopped with a report: {sum(bool(o.stopped) for o in outcomes)};"
        f" writes refused as fenced: {sum(o.refused for o in outcomes)}, lost by the store:"
        f" {sum(o.lost_writes for o in outcomes)}",
        "faults:",
        *(f"  {times:8d}  {kind}" for kind, times in sorted(kinds.items())),
        "interrupted steps:",
        *(f"  {times:8d}  {step}" for step, times in sorted(interrupted.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
