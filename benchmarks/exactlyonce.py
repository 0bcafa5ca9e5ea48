"""`exactly-once`: Kafka -> keyed window -> Kafka with its state in Redis, while everything of it is killed.

Workers, a worker together with the one that has the copy of its state, the sink between writing and committing (its
open transaction holds up readers until its successor has ended it), the controller, the broker, Redis, which now and
then comes back empty; on Spark executors, too. Somebody who reads committed messages all the while must see every
result once, each key's in order, and of each epoch of a partition of the sink all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.drive import scratch
from benchmarks.faults import Fault, figures, measure, plan, rounds
from benchmarks.load import EPOCH, timing_of
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.reader import Result, apart_seconds, counted, judged, torn, whole_input
from benchmarks.topics import KEYS, SINK, SOURCE, WINDOW
from benchmarks.trial import Trial
from seep.errors import Misuse

NAME = "exactly-once"
WORKERS = {"local": 4, "spark": 3}
KILLS = 100
RATE = 1_000.0
CHECKPOINT = "1s"
REST_SECONDS = (0.2, 1.0)


def run(options: Options, tell: Tell) -> Outcome:
    if options.on not in WORKERS:
        raise Misuse(f"{NAME} --on {options.on}; it runs on: {', '.join(WORKERS)}")
    rng = Random(options.seed)
    counts = plan(options.on, KILLS if options.kills is None else options.kills)
    drawn = rounds(counts, rng)
    rate, workers = float(int(options.rate or RATE)), options.workers or WORKERS[options.on]
    timing = options.epoch or EPOCH, options.checkpoint or CHECKPOINT
    faults: list[Fault] = []
    with scratch() as home:
        tell("starting", 0.0)
        with Trial(NAME, home, rate, timing, ("--on", options.on, "--workers", str(workers))) as trial:
            for number, kinds in enumerate(drawn):
                tell(f"{' and '.join(kinds)}, {number + 1} of {len(drawn)}", number / len(drawn))
                trial.rest(rng.uniform(*REST_SECONDS))
                faults += trial.round(kinds, rng)
            tell("draining", 1.0)
            rows, audit = trial.drain()
            results, ends = trial.reading.end(), trial.reading.ends
            tell("counting the input", 1.0)
            given = whole_input(trial.broker.address)
            scraped = trial.scraped_targets()
    verdict = {**judged(results, counted(given)), "torn": torn(results, ends)}
    audited = agrees(audit, results, len(given)) and len(given) == rows
    for fault in faults:
        measure(fault, results)
    return Outcome(
        NAME,
        {
            "on": options.on,
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": KEYS,
            "window_ms": WINDOW.total_seconds() * 1000,
            **timing_of(replace(options, checkpoint=timing[1])),
            "seed": options.seed,
        },
        not any(verdict.values()) and audited and scraped > 0,
        {
            **verdict,
            "audited": audited,
            **figures(faults, results),
            "epoch_apart_ms": spread([1000 * seconds for seconds in apart_seconds(results)]),
            "rows": rows,
            "results": len(results),
            "scraped_targets": scraped,
        },
        {f"{kind}_still_seconds": [f.still_seconds for f in faults if f.kind == kind and f.alone] for kind in counts},
    )


def agrees(audit: Mapping[str, Any], results: list[Result], rows: int) -> bool:
    """Do the flow's own books balance, and say the same as whoever counts outside?"""
    seen = sum(result.belongs[1] <= audit["epoch"] for result in results)
    return bool(audit["balanced"]) and audit["read"][SOURCE] == rows and audit["sinks"][SINK]["committed"] == seen
