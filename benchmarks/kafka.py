"""`kafka`: Kafka -> keyed window -> Kafka, exactly once, by seep and by others, on one broker; and JSON decode alone.

All are measured by one rule, from outside. Of its rows a system finds the first part in its topic; the rest is written
too, but its transaction is not committed, so nobody who reads committed messages sees it. When the results of the first
part have come, the system is warm: the transaction is committed, and the clock runs until somebody who reads
committed messages has the last result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import seep
from benchmarks.contest import Contest, Measured, Task
from benchmarks.decode import figures as decode_figures
from benchmarks.drive import scratch
from benchmarks.driver import Driver
from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.peers import Unable, adapter
from benchmarks.sales import KEYS, LATENESS_MS, PARTITIONS, WINDOW_MS, Sales, expected, judged
from benchmarks.servers.kafka import KafkaBroker, ServerError
from benchmarks.topics import make_topics
from seep.errors import Misuse, Retry
from seep.model.duration import microseconds

NAME = "kafka"
ROWS = 6_000_000
WARM_SHARE, WARM_ROWS = 0.25, 300_000
"""Of the rows measured so many come before, and no fewer than it takes until windows close."""
EPOCH, CHECKPOINT = "50ms", "1s"
WORKERS = 2
SHARES = {"quix": 1 / 30}
"""Of the rows, for those who would take minutes for all."""
PARTS = ("decode", "topics")
APP = """
from benchmarks.kafka import flow_of
flow = flow_of({servers!r}, {source!r}, {target!r}, {epoch!r}, {checkpoint!r})
"""


def flow_of(servers: str, source: str, target: str, epoch: str, checkpoint: str) -> seep.Flow:
    flow = seep.Flow(NAME, epoch=epoch, checkpoint=checkpoint)
    read = seep.KafkaSource(source, servers=servers, schema={"store": str, "at": int, "amount": int})
    rows = flow.source("rows", read, time=("at", "ms"), lateness=f"{LATENESS_MS}ms").scale(start=WORKERS)
    windows = rows.key_by("store").window(
        seep.tumbling(f"{WINDOW_MS}ms"),
        items=seep.count(),
        revenue=seep.total("amount"),
        largest=seep.maximum("amount"),
    )
    written = windows.named("windows").scale(start=WORKERS).drop("window_end")
    written.sink("out", seep.KafkaSink(target, servers=servers, key="store"))
    return flow


def run(options: Options, tell: Tell) -> Outcome:
    if options.on not in ("local", "spark"):
        raise Misuse(f"{NAME} --on {options.on}; it runs on: local, spark")
    if options.part not in (None, *PARTS):
        raise Misuse(f"{NAME} --part {options.part}; it has: {', '.join(PARTS)}")
    found: dict[str, Any] = {}
    verified = True
    if options.part != "topics":
        tell("JSON decode alone", 0.0)
        found, verified = decode_figures(options.seed)
    if options.part != "decode":
        with scratch() as home, _broker(home) as broker:
            trial = Trial(options, home, broker)
            tell("seep", 0.1)
            own = trial.seep()
            found |= own
            verified &= own["verified"]
            peers = {}
            for number, peer in enumerate(options.peers, 1):
                tell(peer, (0.1 + number) / (1 + len(options.peers)))
                peers[peer] = trial.peer(peer)
            if peers:
                found["peers"] = peers
    found.pop("verified", None)
    settings = {
        "on": options.on,
        "workers": options.workers or WORKERS,
        "rows": options.rows or ROWS,
        "keys": KEYS,
        "window_ms": WINDOW_MS,
        "lateness_ms": LATENESS_MS,
        "partitions": PARTITIONS,
        "epoch_ms": microseconds(options.epoch or EPOCH) / 1000,
        "checkpoint_ms": microseconds(options.checkpoint or CHECKPOINT) / 1000,
        "seed": options.seed,
    }
    return Outcome(NAME, settings, verified, found)


class Trial:
    """One system after the other on one broker, each with topics of its own."""

    def __init__(self, options: Options, home: Path, broker: KafkaBroker) -> None:
        self._options, self._home, self._broker = options, home, broker
        self._rows = options.rows or ROWS
        self._written: dict[int, tuple[Path, npt.NDArray[np.int64], pl.DataFrame]] = {}

    def seep(self) -> dict[str, Any]:
        task = self._task("seep", self._rows)
        app = APP.format(
            servers=task.servers,
            source=task.source,
            target=task.target,
            epoch=self._options.epoch or EPOCH,
            checkpoint=self._options.checkpoint or CHECKPOINT,
        )
        workers = str(self._options.workers or WORKERS)

        def begin() -> Any:
            return Driver(NAME, app, task.home, ("--on", self._options.on, "--workers", workers))

        return self._measure(task, begin)

    def peer(self, name: str) -> dict[str, Any]:
        task = self._task(name, max(10_000, int(self._rows * SHARES.get(name, 1.0))))
        engine = adapter(name)
        if not hasattr(engine, "topics"):
            return {"unavailable": f"no program for {NAME}"}
        try:
            begin, version, how = engine.topics(task)
            return {**self._measure(task, begin), "version": version, "how": how}
        except (Unable, Retry) as problem:
            return {"unavailable": str(problem)}

    def _task(self, system: str, rows: int) -> Task:
        home = self._home / system
        home.mkdir()
        checkpoint = microseconds(self._options.checkpoint or CHECKPOINT) // 1000
        return Task(system, rows, self._broker.address, f"in-{system}", f"out-{system}", home, checkpoint, WORKERS)

    def _measure(self, task: Task, begin: Any) -> dict[str, Any]:
        warm = max(WARM_ROWS, int(task.rows * WARM_SHARE))
        sales = Sales(warm + task.rows, self._options.seed)
        path, numbers, right = self._data(sales)
        make_topics(task.servers, {task.source: PARTITIONS, task.target: PARTITIONS})
        with Contest(task, self._broker.process, begin) as contest:
            measured: Measured = contest.run(sales, path, numbers, warm, right)
        verdict = judged(measured.results, right)
        return {**measured.figures(task.rows), **verdict, "verified": not any(verdict.values())}

    def _data(self, sales: Sales) -> tuple[Path, npt.NDArray[np.int64], pl.DataFrame]:
        if sales.rows not in self._written:
            path = self._home / f"rows-{sales.rows}.ndjson"
            self._written[sales.rows] = path, sales.write(path), expected(path)
        return self._written[sales.rows]


def _broker(home: Path) -> KafkaBroker:
    try:
        return KafkaBroker(home / "kafka")
    except ServerError as problem:
        raise Retry(f"{problem}; tools/setup kafka brings what it needs") from problem
