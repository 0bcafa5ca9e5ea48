"""One run of a workload on seep: started, warmed up, measured, drained; and what it gave compared with the oracle."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import seep
from benchmarks.books import Books
from benchmarks.digest import digest
from benchmarks.digestsink import DigestSink, digest_of, read_arrivals
from benchmarks.looped import SPLITS
from benchmarks.machine import cpu_seconds, resident_bytes
from benchmarks.oracle import expected
from benchmarks.workload import WORKERS, Workload
from seep.errors import Retry
from seep.partition.saver import VERSIONS
from seep.running import Job

LOOK_SECONDS = 0.5
FIRST_SECONDS = 120.0
DRAIN_SECONDS = 300.0
BOUNDED_SECONDS = 900.0
ROWS_LOOKED_AT = 5


@dataclass(frozen=True)
class Plan:
    """How long, how much. ``rows``: of each source, then the clock runs from the first read to the last arrival;
    None: endless, and the clock runs for `seconds` after `warm_seconds`."""

    seed: int = 42
    rows: int | None = None
    warm_seconds: float = 10.0
    seconds: float = 30.0
    rate: float | None = None
    epoch: str = "50ms"
    checkpoint: str = "5s"
    workers: int = WORKERS
    on: str = "local"


class Measured:
    def __init__(self, workload: Workload, plan: Plan, path: Path) -> None:
        self.workload = workload
        self.plan = plan
        self.path = path / "out"
        self.checkpoints = 0
        self.peak_memory_bytes = 0
        """Of all workers together."""
        split_rows = None if plan.rows is None else max(1, plan.rows // SPLITS)
        self.sources = {name: workload.looped(name, plan.seed, split_rows, plan.rate) for name in workload.blocks}
        sink = DigestSink(self.path, workload.columns, workload.keys, workload.time)
        digest([pa.array(["a"]), pa.array([1])])  # compiled here once, so that no worker compiles
        flow = workload.flow(self.sources, sink, plan.epoch, plan.checkpoint, plan.workers)
        job = seep.start(flow, on=plan.on, workers=plan.workers)
        self.books = Books(job, self.sources)
        self._used: dict[int, float] = {}
        try:
            self._bounded(job) if plan.rows is not None else self._endless(job)
        finally:
            job.close()
        self.books.look()
        self.arrivals = read_arrivals(self.path)
        self.given = self.books.given(SPLITS)
        self._skew_ns = time.monotonic_ns() - time.time_ns()
        self._clock()

    # --- running -------------------------------------------------------------------------------------------------

    def _endless(self, job: Job) -> None:
        deadline = time.monotonic() + FIRST_SECONDS
        while not read_arrivals(self.path):
            self._rest(job, LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise Retry(f"{self.workload.name}: nothing arrived within {FIRST_SECONDS:.0f} s")
        self._rest(job, self.plan.warm_seconds)
        before, self.began_ns = self._look(job), time.monotonic_ns()
        saved = _checkpoints(job)
        self._rest(job, self.plan.seconds)
        after, self.ended_ns = self._look(job), time.monotonic_ns()
        self.cpu_seconds = after - before
        self.checkpoints = _checkpoints(job) - saved
        job.stop(drain=True)
        job.wait(DRAIN_SECONDS)

    def _bounded(self, job: Job) -> None:
        deadline = time.monotonic() + BOUNDED_SECONDS
        while not job.host.ended.wait(0.05):
            self.cpu_seconds = self._look(job)
            self.checkpoints = max(self.checkpoints, _checkpoints(job))
            if time.monotonic() > deadline:
                raise Retry(f"{self.workload.name} has not ended within {BOUNDED_SECONDS:.0f} s")
        job.wait()

    def _rest(self, job: Job, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            self._look(job)

    def _look(self, job: Job) -> float:
        """Note what has been cut, and the memory in use; processor time of all workers so far."""
        if job.host.outcome and self.plan.rows is None:
            raise Retry(f"{self.workload.name} has {job.host.outcome}: {job.host.report}")
        self.books.look()
        cards = job.directory.registered().values()
        self.peak_memory_bytes = max(self.peak_memory_bytes, sum(resident_bytes(card["process"]) for card in cards))
        for card in cards:
            self._used[card["process"]] = max(self._used.get(card["process"], 0.0), cpu_seconds(card["process"]))
        return sum(self._used.values())

    # --- reckoning -----------------------------------------------------------------------------------------------

    def _clock(self) -> None:
        """Rows between the first and the last epoch that arrived while the clock ran, and the time between them."""
        if self.plan.rows is not None:
            self.began_ns = min(self.books.began_ms().values()) * 1_000_000 + self._skew_ns
            self.ended_ns = max(arrival.at_ns for arrival in self.arrivals)
            self.rows = sum(map(sum, self.given.values()))
            self.seconds = (self.ended_ns - self.began_ns) / 1e9
            self.processed = float(self.rows)
            return
        inside = [a for a in self.arrivals if self.began_ns <= a.at_ns <= self.ended_ns]
        if len(inside) < 2:
            raise Retry(f"{self.workload.name}: fewer than two epochs arrived in {self.plan.seconds:.0f} s")
        first, last = inside[0], inside[-1]
        upto = self.books.rows_upto(np.array([first.epoch, last.epoch]))
        self.rows = int(upto[1] - upto[0])
        self.seconds = (last.at_ns - first.at_ns) / 1e9
        self.processed = self.rows * (self.ended_ns - self.began_ns) / (last.at_ns - first.at_ns)

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_seconds_per_10m_rows(self) -> float:
        return self.cpu_seconds / self.processed * 10_000_000

    def latencies_ms(self) -> list[float]:
        """Of every epoch with results: from the reading of its rows to the arrival of what follows from them."""
        read_ms = self.books.read_ms()
        return [
            (a.at_ns - self._skew_ns) / 1e6 - read_ms[a.epoch]
            for a in self.arrivals
            if a.low >= 0 and a.epoch in read_ms and self.began_ns <= a.at_ns <= self.ended_ns
        ]

    def released_latencies_ms(self, window_us: int, lateness_us: int) -> list[float]:
        """Under an open load, of every epoch with windows: from the release of the row that moved the watermark over
        the end of its latest window to the arrival."""
        assert self.plan.rate is not None
        began_ms = self.books.began_ms()
        due_ms = []
        for name, source in self.sources.items():
            per_ms = self.plan.rate / source.splits / 1000
            for split, rows in enumerate(self.given[name]):
                times = source.record(split, 0, rows).column("at").cast("int64").to_numpy()
                due_ms.append((began_ms[name, split], per_ms, np.maximum.accumulate(times)))
        found = []
        for arrival in self.arrivals:
            if arrival.low < 0 or not self.began_ns <= arrival.at_ns <= self.ended_ns:
                continue
            passed_us = arrival.newest_us + window_us + lateness_us
            places = [int(np.searchsorted(times, passed_us)) for _, _, times in due_ms]
            released = [begin + place / per_ms for (begin, per_ms, _), place in zip(due_ms, places, strict=True)]
            found.append((arrival.at_ns - self._skew_ns) / 1e6 - max(released))
        return found

    def row_latencies_ms(self) -> list[float]:
        """Under an open load, of some rows of every epoch: from their release to the arrival of what follows."""
        assert self.plan.rate is not None
        began_ms, found = self.books.began_ms(), []
        for arrival in self.arrivals:
            if arrival.low < 0 or not self.began_ns <= arrival.at_ns <= self.ended_ns:
                continue
            for source, split, first, end in self.books.ranges(arrival.epoch):
                per_ms = self.plan.rate / self.sources[source].splits / 1000
                released = began_ms[source, split] + np.linspace(first, end - 1, ROWS_LOOKED_AT) / per_ms
                found += ((arrival.at_ns - self._skew_ns) / 1e6 - released).tolist()
        return found

    def verify(self) -> bool:
        """The same rows as the oracle has, none missing, none twice."""
        self.result = digest_of(self.arrivals)
        return self.result.rows > 0 and self.result == expected(self.workload, self.given, self.plan.seed)


def _checkpoints(job: Job) -> int:
    """Durable ones so far of the operator partition that has the fewest; each has the number after the one before."""
    graph, statuses = job.host.machine.graph, job.host.view.statuses
    newest = [s.durable_version for s in statuses.values() if graph.nodes[s.partition.operator].kind == "operator"]
    return min((version % VERSIONS for version in newest), default=0)
