"""`zombie`: a worker is stopped (SIGSTOP) until others have taken its place, then goes on (SIGCONT) as if nothing had
happened. Whatever it sends then must be refused and counted, and the output must not differ.

Refusals are counted where they happen: frames and subscriptions by the receiving worker, appends and checkpoints by
the store, whose answer the zombie itself counts. All are read from the workers' metrics. One that runs nothing but a
sink may have nothing under way when it is stopped, and then sends nothing that could be refused.
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass
from random import Random
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.arrivals import ArrivalSink
from benchmarks.drive import Driven, committed, scratch
from benchmarks.load import CHECKPOINT, EPOCH, SINK, Load, timing_of
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.verdict import judge

RATE = 100_000
KEYS = 100_000
WORKERS = 4
PARTS = 2
PAUSES = 3
PAUSE_SECONDS = 10.0
REFUSED = re.compile(r'^seep_dropped_total\{.*reason="fenced".*\} (\S+)$', re.MULTILINE)


def run(options: Options, tell: Tell) -> Outcome:
    wanted = PAUSES if options.kills is None else options.kills
    seconds = options.seconds or PAUSE_SECONDS
    rate = options.rate or RATE
    load, rng = Load.of(KEYS, options), Random(options.seed)
    workers = options.workers or WORKERS
    pauses: list[Pause] = []
    with scratch() as home:
        path = home / "arrivals"
        checkpoint, epoch = options.checkpoint or CHECKPOINT, options.epoch or EPOCH
        flow = load.flow("zombie", rate, ArrivalSink(path), checkpoint, PARTS, epoch=epoch)
        driven = Driven(flow, path, rate, options.on, workers)
        try:
            driven.steady(load.cold_keys)
            for number in range(wanted):
                tell(f"pause {number + 1} of {wanted}", number / wanted)
                pauses.append(_pause(driven, rng, seconds))
            given = driven.drain()
        finally:
            driven.close()
        tell("comparing with the oracle", 1.0)
        verdict = judge(load, given, path, committed(driven.job))
    return Outcome(
        "zombie",
        {
            "on": options.on,
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": KEYS,
            **timing_of(options),
            "pause_seconds": seconds,
            "seed": options.seed,
        },
        verdict.identical and all(pause.refused or pause.operators == [SINK] for pause in pauses),
        {
            "pauses": len(pauses),
            "refused": {
                "each": [pause.refused for pause in pauses],
                "total": sum(pause.refused for pause in pauses),
            },
            "operators": [pause.operators for pause in pauses],
            **verdict.figures(),
        },
    )


@dataclass(frozen=True)
class Pause:
    operators: list[str]
    """That the worker ran."""
    refused: int
    """After its sleep, by anyone, and of its own by the store."""


def _pause(driven: Driven, rng: Random, seconds: float) -> Pause:
    worker = rng.choice(sorted(driven.by_worker()))
    operators = sorted({entry.partition.operator for entry in driven.by_worker()[worker]})
    process = driven.processes()[worker]
    own = refusals(driven)[worker]
    os.kill(process, signal.SIGSTOP)
    try:
        driven.rest(seconds)
        driven.until(lambda: worker not in driven.by_worker(), "another worker in its place")
        driven.until(driven.keeps_up, "keeping up without it")
        before = refusals(driven) | {worker: own}
    finally:
        os.kill(process, signal.SIGCONT)
    driven.rest(3.0)
    driven.until(driven.keeps_up, "keeping up with it back")
    return Pause(operators, sum(count - before.get(name, 0) for name, count in refusals(driven).items()))


def refusals(driven: Driven) -> dict[str, int]:
    """By worker: refused so far, as its own metrics say. One that is stopped does not answer, and says 0."""
    return {worker: int(_refused(card["metrics_port"])) for worker, card in driven.job.directory.registered().items()}


def _refused(port: int) -> float:
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=0.5) as answer:
                return sum(map(float, REFUSED.findall(answer.read().decode())))
        except (URLError, TimeoutError, ConnectionError):
            time.sleep(0.05)  # it is stopped, or gone: it counts nothing
    return 0.0
