"""`exactly-once`: Kafka -> keyed window -> Kafka, while workers, the controller and the broker are killed.

Somebody who reads committed messages all the while must see every result once, and each key's in order. The sink is
killed between writing and committing too: its open transaction holds up readers until its successor has ended it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.contest import make_topics
from benchmarks.drive import scratch
from benchmarks.driver import Driver
from benchmarks.load import EPOCH, timing_of
from benchmarks.outcome import Options, Outcome, Tell, spread
from benchmarks.servers.kafka import KafkaBroker, ServerError
from benchmarks.topics import (
    IN,
    KEYS,
    OUT,
    OUT_PARTITIONS,
    SOURCE,
    SPLITS,
    WINDOW,
    WINDOWS,
    Reading,
    Result,
    Writing,
    judged,
)
from seep.backends.process import Process
from seep.cli import client
from seep.errors import Misuse, Retry
from seep.model.ids import PartitionId
from seep.protocol.effects import ReadLog
from seep.protocol.journal import LIVE
from seep.runtime.job import process_began

NAME = "exactly-once"
APP = """
from benchmarks.topics import flow_of
flow = flow_of({name!r}, {servers!r}, {folder!r}, {epoch!r}, {checkpoint!r})
"""
WORKERS = {"local": 4, "spark": 3}
KILLS = 100
RATE = 1_000.0
CHECKPOINT = "1s"
WORKER, PAIR, SINK, CONTROLLER, BROKER, PAUSE = "worker", "pair", "sink", "controller", "broker", "pause"
PAUSE_SECONDS = 3.0
REST_SECONDS = (0.5, 1.5)
BEHIND_SECONDS = 2.0
"""With results so old, or younger, the flow has caught up."""
STUCK_SECONDS = 180.0
POLL_SECONDS = 0.02


@dataclass
class Fault:
    kind: str
    at: float
    """When, on the monotonic clock."""
    over: float
    """When whatever was taken away was there again; of what must be replaced by others: the same as `at`."""
    window: int
    """The one that was written to at that moment."""
    recovery_seconds: float = float("nan")
    """From then to results of all keys that hold rows written after it."""
    still_seconds: float = float("nan")
    """The longest time in which the reader saw nothing."""


def run(options: Options, tell: Tell) -> Outcome:
    if options.on not in WORKERS:
        raise Misuse(f"{NAME} --on {options.on}; it runs on: {', '.join(WORKERS)}")
    rng = Random(options.seed)
    kinds = plan(KILLS if options.kills is None else options.kills)
    rng.shuffle(kinds)
    rate, workers = float(int(options.rate or RATE)), options.workers or WORKERS[options.on]
    with scratch() as home, _broker(home) as broker:
        tell("starting", 0.0)
        with Trial(broker, home, rate, workers, options) as trial:
            trial.until(lambda: trial.reading.reached() > 0, "the first results")
            faults = []
            for number, kind in enumerate(kinds):
                tell(f"{kind} {number + 1} of {len(kinds)}", number / len(kinds))
                trial.rest(rng.uniform(*REST_SECONDS))
                faults.append(trial.fault(kind, rng))
            tell("draining", 1.0)
            rows, audit = trial.drain()
            results = trial.reading.end()
        verdict = judged(results, rows, rate)
    for fault in faults:
        measure(fault, results)
    audited = bool(audit["balanced"]) and audit["read"][SOURCE] == rows
    return Outcome(
        NAME,
        {
            "on": options.on,
            "workers": workers,
            "rate_rows_per_second": rate,
            "keys": KEYS,
            "window_ms": WINDOW.total_seconds() * 1000,
            **timing_of(replace(options, checkpoint=options.checkpoint or CHECKPOINT)),
            "seed": options.seed,
        },
        not any(verdict.values()) and audited,
        {**figures(faults), "rows": rows, "results": len(results), "audited": audited, **verdict},
        {f"{kind}_still_seconds": [f.still_seconds for f in faults if f.kind == kind] for kind in dict.fromkeys(kinds)},
    )


def plan(kills: int) -> list[str]:
    """What is killed, and on top of it the broker.

    >>> [plan(100).count(kind) for kind in (WORKER, PAIR, SINK, CONTROLLER, BROKER, PAUSE)]
    [50, 20, 20, 10, 10, 10]
    """
    others = {
        PAIR: kills // 5,
        SINK: kills // 5,
        CONTROLLER: kills // 10,
        BROKER: -(-kills // 10),
        PAUSE: -(-kills // 10),
    }
    own = kills - others[PAIR] - others[SINK] - others[CONTROLLER]
    return [WORKER] * own + [kind for kind, count in others.items() for _ in range(count)]


def measure(fault: Fault, results: Sequence[Result]) -> None:
    """`results` in the order in which they came."""
    fresh: set[str] = set()
    times = [fault.at]
    for result in results:
        if result.at < fault.at:
            continue
        times.append(result.at)
        if result.at >= fault.over and result.window > fault.window:
            fresh.add(result.key)
            if len(fresh) == KEYS:
                fault.recovery_seconds = result.at - fault.over
                break
    fault.still_seconds = max((later - earlier for earlier, later in pairwise(times)), default=float("nan"))


def figures(faults: Sequence[Fault]) -> dict[str, Any]:
    def of(*kinds: str) -> list[Fault]:
        return [fault for fault in faults if fault.kind in kinds]

    killed = of(WORKER, PAIR, SINK, CONTROLLER)
    found: dict[str, Any] = {
        "kills": len(killed),
        **{f"{kind}_kills": len(of(kind)) for kind in (WORKER, PAIR, SINK, CONTROLLER, BROKER)},
        "broker_pauses": len(of(PAUSE)),
        "unrecovered": sum(fault.recovery_seconds != fault.recovery_seconds for fault in faults),
        "recovery_ms": spread([1000 * fault.recovery_seconds for fault in of(WORKER, PAIR, SINK)]),
        "still_seconds": spread([fault.still_seconds for fault in faults]),
    }
    for kind in (WORKER, PAIR, SINK, CONTROLLER, BROKER, PAUSE):
        found[f"{kind}_recovery_seconds"] = spread([fault.recovery_seconds for fault in of(kind)])
        found[f"{kind}_still_seconds"] = spread([fault.still_seconds for fault in of(kind)])
    return found


class Trial:
    """The flow, what writes to it and what reads from it."""

    def __init__(self, broker: KafkaBroker, home: Path, rate: float, workers: int, options: Options) -> None:
        self.broker, self._folder = broker, home / "sink"
        self._folder.mkdir()
        make_topics(broker.address, {IN: SPLITS, OUT: OUT_PARTITIONS})
        app = APP.format(
            name=NAME,
            servers=broker.address,
            folder=str(self._folder),
            epoch=options.epoch or EPOCH,
            checkpoint=options.checkpoint or CHECKPOINT,
        )
        self._driver = Driver(NAME, app, home, ("--on", options.on, "--workers", str(workers)))
        self.writing, self.reading = Writing(broker.address, rate), Reading(broker.address)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_problem: object) -> None:
        self._driver.close()
        self.reading.end()
        self.writing.stop()

    def drain(self) -> tuple[int, Mapping[str, Any]]:
        """How many rows there were, and what the flow's own books say once it has read them."""
        rows = self.writing.end()
        self.until(lambda: self._read_rows() >= rows, "reading all rows")
        # Of the last rows the windows stay open until the flow is told to end.
        self.until(lambda: self.reading.reached() >= self.writing.window() - 2, "all but the last windows")
        audit = client.ask(NAME, "GET", "audit")
        if not self._driver.drain(STUCK_SECONDS):
            raise Retry(f"the flow has not drained in {STUCK_SECONDS:.0f} s")
        count = -1
        while count < len(self.reading.results):  # nothing more comes
            count = len(self.reading.results)
            time.sleep(1.0)
        return rows, audit

    # --- faults --------------------------------------------------------------------------------------------------

    def fault(self, kind: str, rng: Random) -> Fault:
        """Do it, and wait until results of all keys come as before."""
        done = self._do(kind, rng)
        behind = int(BEHIND_SECONDS / WINDOW.total_seconds())

        def settled() -> bool:
            reached = self.reading.reached()
            return reached > done.window and reached >= self.writing.window() - behind

        self.until(settled, f"results after {kind}")
        return done

    def _do(self, kind: str, rng: Random) -> Fault:
        at = time.monotonic()
        if kind == WORKER:
            at = self._kill([rng.choice(sorted(self._running()))])
        elif kind == PAIR:
            # Of the state of a window's partition the copy is with a worker of the source before it.
            owner = rng.choice(sorted(self._running(WINDOWS)))
            at = self._kill({owner, *self._running(SOURCE)})
        elif kind == SINK:
            at = self._kill_between_write_and_commit()
        elif kind == CONTROLLER:
            self._kill_controller()
        elif kind == BROKER:
            self.broker.kill()
            self.broker.start()
        else:
            self.broker.pause()
            time.sleep(PAUSE_SECONDS)
            self.broker.go_on()
        over = time.monotonic() if kind in (BROKER, PAUSE) else at
        return Fault(kind, at, over, self.writing.window())

    def _running(self, operator: str = "") -> dict[str, Process]:
        """The workers that run something, or something of this operator."""
        alive = self._driver.alive()
        entries = self._driver.job.journal.entries.values()
        names = {e.worker for e in entries if e.role == LIVE and operator in ("", e.partition.operator)}
        found = {name: alive[name] for name in names if name in alive}
        return found or self._running()

    def _kill(self, workers: Iterable[str]) -> float:
        alive, at = self._driver.alive(), time.monotonic()
        for worker in workers:
            if worker in alive:
                alive[worker].signal(signal.SIGKILL)
        return at

    def _kill_between_write_and_commit(self) -> float:
        holding, hold = self._folder / "holding", self._folder / "hold"
        holding.unlink(missing_ok=True)
        hold.touch()
        self.until(holding.exists, "an open transaction")
        number = int(holding.read_text())
        at = time.monotonic()
        Process(number, process_began(number)).signal(signal.SIGKILL)
        hold.unlink()
        return at

    def _kill_controller(self) -> None:
        term = self._driver.job.journal.term
        self._driver.kill()
        self._driver.start("--resume")
        self.until(lambda: self._driver.job.journal.term > term, "the new controller")

    # --- watching ------------------------------------------------------------------------------------------------

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STUCK_SECONDS
        while not done():
            if problem := self._driver.problem():
                raise Retry(problem)
            if time.monotonic() > deadline:
                raise Retry(f"{what}: not within {STUCK_SECONDS:.0f} s; {self._situation()}")
            time.sleep(POLL_SECONDS)

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, "a rest")

    def _read_rows(self) -> int:
        """By the epoch logs of the source. The topic is not written to in transactions, so offsets count rows."""
        job, offsets = self._driver.job, dict[str, int]()
        store = job.directory.store()
        for number in range(job.journal.next_number.get(SOURCE, 0)):
            reply = store.perform(ReadLog(0, PartitionId(SOURCE, number)))
            for split, known in (reply.value[-1][1]["splits"] if reply is not None and reply.value else {}).items():
                offsets[split] = max(offsets.get(split, 0), known[1] or 0)
        return sum(offsets.values())

    def _situation(self) -> str:
        journal = self._driver.job.journal
        newest = f"results up to window {self.reading.reached()} of {self.writing.window()}"
        return "\n  ".join([f"{newest}, journal {journal.version}", *map(str, journal.entries.values())])


def _broker(home: Path) -> KafkaBroker:
    try:
        return KafkaBroker(home / "kafka")
    except ServerError as problem:
        raise Retry(f"{problem}; tools/setup kafka brings what it needs") from problem
