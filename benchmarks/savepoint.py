"""`savepoint`: a flow with much state is saved while it runs under an open load, and another one started from it.

`savepoint_seconds` is what `job.savepoint` takes. `latency_ratio` is the p99 of the running flow's latency while it is
saved (from the release of the newest row of an epoch to its arrival at the sink) by that of the time before.
`restore_seconds` is the time from the call that starts the new job to the first row that arrives from it. What came out
before the savepoint and after the restore, together, must be every effect of every row, once.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arrivals import ArrivalSink, epochs_of
from benchmarks.drive import Driven, Watched, committed, scratch
from benchmarks.load import CHECKPOINT, EPOCH, Load, timing_of
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.verdict import judge

STATE_BYTES = 1_000_000_000
BYTES_PER_KEY = 310
"""Of state in both operators together, as they say themselves, about."""
RATE = 50_000
KEYS = 10_000
WORKERS = 2
PARTS = 2
SAVEPOINTS = 3
CALM_SECONDS = 20.0
BETWEEN_SECONDS = 2.0
AFTER_SECONDS = 2.0


@dataclass(frozen=True)
class Taken:
    path: Path
    epoch: int
    seconds: float
    lags_ms: list[float]
    """Of what arrived meanwhile."""


def run(options: Options, tell: Tell) -> Outcome:
    load = Load(KEYS, options.seed, (options.state_bytes or STATE_BYTES) // BYTES_PER_KEY)
    rate, workers = options.rate or RATE, options.workers or WORKERS
    checkpoint, epoch = options.checkpoint or CHECKPOINT, options.epoch or EPOCH
    with scratch() as home:
        before, after = home / "before", home / "after"
        flow = load.flow("savepoint", rate, ArrivalSink(before), checkpoint, PARTS, epoch=epoch)
        driven = Driven(flow, before, rate, options.on, workers)
        try:
            tell(f"{load.cold_keys:,} keys come in", 0.0)
            driven.until(lambda: any(a.newest >= load.cold_keys for a in driven.arrivals[-20:]), "the state", 600.0)
            driven.steady()
            state_bytes = driven.state_bytes()
            driven.rest(options.seconds or CALM_SECONDS)
            calm = driven.recent_lags_ms(options.seconds or CALM_SECONDS)
            taken: list[Taken] = []
            wanted = SAVEPOINTS if options.kills is None else options.kills
            for number in range(wanted):
                tell(f"savepoint {number + 1}", 0.4 + 0.3 * number / wanted)
                taken.append(_save(driven, f"s{number}"))
                driven.rest(BETWEEN_SECONDS)
        finally:
            driven.close()
        left = list(committed(driven.job))
        tell("restoring", 0.8)
        flow = load.flow("savepoint", rate, ArrivalSink(after), checkpoint, PARTS, epoch=epoch)
        began = time.monotonic()
        restored = Driven(flow, after, rate, options.on, workers, restore=taken[-1].path)
        try:
            restored.until(lambda: any(a.newest >= 0 for a in restored.arrivals), "the first row", 300.0)
            restore_seconds = time.monotonic() - began
            restored.rest(AFTER_SECONDS)
            balanced = restored.job.audit()["balanced"]
            given = restored.drain()
        finally:
            restored.close()
        tell("comparing with the oracle", 0.95)
        _join(before, after, taken[-1].epoch)
        records = [*((e, r) for e, r in left if e <= taken[-1].epoch), *committed(restored.job)]
        verdict = judge(load, given, after, records)
        saved_bytes = _size_bytes(taken[-1].path)
    meanwhile = [lag for one in taken for lag in one.lags_ms]
    seconds = [one.seconds for one in taken]
    ratio = spread(meanwhile).get("p99", float("inf")) / max(spread(calm).get("p99", 0.0), 0.01)
    return Outcome(
        "savepoint",
        {
            "on": options.on,
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": load.keys + load.cold_keys,
            **timing_of(options),
            "state_bytes": state_bytes,
            "seed": options.seed,
        },
        verdict.identical and balanced,
        {
            "savepoint_seconds": round(sorted(seconds)[len(seconds) // 2], 2),
            "restore_seconds": round(restore_seconds, 2),
            "latency_ratio": round(ratio, 2),
            "latency_ms": spread(calm),
            "meanwhile_latency_ms": spread(meanwhile),
            "saved_bytes": saved_bytes,
            **verdict.figures(),
        },
        {"latency_ms": calm, "meanwhile_latency_ms": meanwhile},
    )


def _save(driven: Driven, name: str) -> Taken:
    """In a thread: meanwhile the arrivals are watched."""
    answers: list[Any] = []
    began_ns = time.monotonic_ns()
    _during(lambda: answers.append(driven.job.savepoint(name)), driven)
    ended_ns = time.monotonic_ns()
    lags = driven.recent_lags_ms((ended_ns - began_ns) / 1e9, ended_ns)
    answer = answers[0]
    return Taken(Path(answer["path"]), answer["epoch"], answer["seconds"], lags)


def _during(work: Callable[[], Any], watched: Watched) -> None:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded, name="savepoint")
    thread.start()
    while thread.is_alive():
        watched.rest(0.05)
    thread.join()
    if failed:
        raise failed[0]


def _join(before: Path, after: Path, upto: int) -> None:
    """What came out before the savepoint, beside what came out after it."""
    for epoch, _, file in epochs_of(before):
        if epoch <= upto:
            shutil.move(file, after / file.name)


def _size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file())
