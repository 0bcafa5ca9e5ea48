"""A flow from Kafka to Kafka with its state in Redis, what writes to it and what reads from it; and what kills it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import faults
from benchmarks.driver import Driver
from benchmarks.faults import Fault
from benchmarks.machine import descendants
from benchmarks.reader import Reading
from benchmarks.servers.kafka import KafkaBroker, ServerError, free_ports
from benchmarks.servers.prometheus import Prometheus
from benchmarks.servers.redis import RedisServer
from benchmarks.topics import SINK as OUTLET
from benchmarks.topics import SINK_PARTS, SOURCE, WINDOW, WINDOWS, Writing, make_topics
from demo.executors import executor_of
from seep.backends.process import Process
from seep.cli import client
from seep.errors import Misuse, Retry
from seep.model.ids import PartitionId
from seep.protocol.effects import ReadLog
from seep.protocol.journal import LIVE, Journal
from seep.runtime.home import job_path
from seep.runtime.job import process_began

APP = """
from benchmarks.topics import flow_of
flow = flow_of({name!r}, {servers!r}, {folder!r}, {epoch!r}, {checkpoint!r})
"""
PAUSE_SECONDS = 3.0
BEHIND_SECONDS = 2.0
"""With results so old, or younger, the flow has caught up."""
STUCK_SECONDS = 180.0
POLL_SECONDS = 0.02
LATER_SECONDS = 1.0
"""The second fault of a round begins within this time."""
LOST = "lost what was written"
"""What a flow says whose store came back empty."""
TARGETS = "count(max_over_time(up[2h]) > 0)"


class Trial:
    def __init__(
        self,
        name: str,
        home: Path,
        rate: float,
        timing: tuple[str, str],
        options: Iterable[str],
        parts: int = SINK_PARTS,
    ) -> None:
        """`timing`: how long an epoch is and how often there is a checkpoint; `options`: of `seep run`; `parts`: of the
        sink."""
        self._name, self._folder = name, home / "sink"
        self._folder.mkdir()
        self._stack = ExitStack()
        self._restarting = threading.Lock()
        """Held while a driver is meant to be gone."""
        self._known: Journal | None = None
        try:
            self.broker = self._stack.enter_context(KafkaBroker(home / "kafka"))
            self.redis = self._stack.enter_context(RedisServer(home / "redis"))
            self.prometheus = self._stack.enter_context(Prometheus(home / "prometheus"))
            make_topics(self.broker.address)
            port = free_ports(1)[0]
            self.prometheus.start(f"http://127.0.0.1:{port}", job_path(name).absolute() / "token")
            servers = self.broker.address
            app = APP.format(
                name=name, servers=servers, folder=str(self._folder), epoch=timing[0], checkpoint=timing[1]
            )
            places = ("--store", self.redis.url, "--prometheus", self.prometheus.url)
            self._driver = Driver(name, app, home, (*options, *places), {"SEEP_API_PORT": str(port)})
            self._stack.callback(self._driver.close)
            self.writing = Writing(servers, rate)
            self._stack.callback(self.writing.stop)
            self.reading = Reading(servers)
            self._stack.callback(self.reading.end)
            self.until(lambda: self.reading.reached() > 0, "the first results")
            self.ask("POST", "scale", {"operator": OUTLET, "count": parts})
        except ServerError as problem:
            self._stack.close()
            raise Retry(f"{problem}; tools/setup kafka brings what Kafka needs") from problem
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_problem: object) -> None:
        self._stack.close()

    def drain(self) -> tuple[int, Mapping[str, Any]]:
        """How many rows there were, and what the flow's own books say once it has read them."""
        rows = self.writing.end()
        self.until(lambda: self._read_rows() >= rows, "reading all rows")
        # Of the last rows the windows stay open until the flow is told to end.
        self.until(lambda: self.reading.reached() >= self.writing.window() - 2, "all but the last windows")
        audit = self.ask("GET", "audit")
        if not self._driver.drain(STUCK_SECONDS):
            raise Retry(f"the flow has not drained in {STUCK_SECONDS:.0f} s")
        count = -1
        while count < len(self.reading.results):  # nothing more comes
            count = len(self.reading.results)
            time.sleep(1.0)
        return rows, audit

    def scraped_targets(self) -> int:
        """How many workers and controllers Prometheus has seen."""
        return int(self.prometheus.value(TARGETS) or 0)

    def ask(self, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Of the job, which may just have been resumed: asked again for a while."""
        deadline = time.monotonic() + STUCK_SECONDS
        while True:
            try:
                return client.ask(self._name, method, route, body)
            except (Misuse, Retry):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    # --- faults --------------------------------------------------------------------------------------------------

    def round(self, kinds: tuple[str, ...], rng: Random) -> list[Fault]:
        """Do these, overlapping, and wait until results of all keys come as before."""
        drawn = [Random(rng.random()) for _ in kinds]
        delays = [0.0, *(rng.uniform(0, LATER_SECONDS) for _ in kinds[1:])]
        with ThreadPoolExecutor(len(kinds)) as threads:
            begun = list(map(threads.submit, [self._fault] * len(kinds), kinds, drawn, delays))
            done = [one.result() for one in begun]
        last = max(fault.window for fault in done)
        behind = int(BEHIND_SECONDS / WINDOW.total_seconds())

        def settled() -> bool:
            reached = self.reading.reached()
            return reached > last and reached >= self.writing.window() - behind

        self.until(settled, f"results after {' and '.join(kinds)}")
        for fault in done:
            fault.alone = len(done) == 1
        return done

    def _fault(self, kind: str, rng: Random, delay_seconds: float) -> Fault:
        time.sleep(delay_seconds)
        at = time.monotonic()
        match kind:
            case faults.WORKER:
                at = self._kill([rng.choice(self._running())])
            case faults.EXECUTOR:
                at = self._kill_executor(rng)
            case faults.PAIR:
                # Of the state of a window's partition the copy is with a worker of the source before it.
                at = self._kill({rng.choice(self._running(WINDOWS)), *self._running(SOURCE)})
            case faults.SINK:
                at = self._kill_between_write_and_commit()
            case faults.CONTROLLER:
                self._kill_controller()
            case faults.BROKER:
                self.broker.kill()
                self.broker.start()
            case faults.PAUSE:
                self.broker.pause()
                time.sleep(PAUSE_SECONDS)
                self.broker.go_on()
            case faults.REDIS:
                self.redis.kill()
                self.redis.start()
            case faults.EMPTIED:
                self._empty_store()
        over = at if kind in faults.REPLACED else time.monotonic()
        return Fault(kind, at, over, self.writing.window())

    def _running(self, operator: str = "") -> list[str]:
        """The workers that run something of this operator, or of any."""
        found: list[str] = []

        def look() -> bool:
            alive, journal = self._driver.alive(), self._journal()
            entries = [e for e in journal.entries.values() if e.role == LIVE and e.worker in alive]
            mine = [e for e in entries if operator in ("", e.partition.operator)]
            found[:] = sorted({entry.worker for entry in mine or entries})
            return bool(found)

        self.until(look, "a worker that lives")
        return found

    def _kill(self, workers: Iterable[str]) -> float:
        alive, at = self._driver.alive(), time.monotonic()
        for worker in workers:
            if worker in alive:
                alive[worker].signal(signal.SIGKILL)
        return at

    def _kill_executor(self, rng: Random) -> float:
        """Its Java process and all below, as if its container had gone."""
        executors: list[int] = []

        def look() -> bool:
            executors[:] = sorted({executor_of(process.number) for process in self._driver.alive().values()} - {0})
            return bool(executors)

        self.until(look, "an executor that runs a worker")
        executor = rng.choice(executors)
        whole = [Process(one, process_began(one)) for one in (executor, *descendants(executor))]
        at = time.monotonic()
        for process in whole:
            process.signal(signal.SIGKILL)
        return at

    def _kill_between_write_and_commit(self) -> float:
        holding, hold = self._folder / "holding", self._folder / "hold"
        holding.unlink(missing_ok=True)
        hold.touch()
        try:
            self.until(holding.exists, "an open transaction")
            number = int(holding.read_text())
            at = time.monotonic()
            Process(number, process_began(number)).signal(signal.SIGKILL)
        finally:
            hold.unlink()
        return at

    def _kill_controller(self) -> None:
        term = self._journal().term
        with self._restarting:
            self._driver.kill()
            self._driver.start("--resume")
        self.until(lambda: self._journal().term > term, "the new controller")

    def _empty_store(self) -> None:
        """The flow must end and say why; with what its store had, it goes on."""
        term = self._journal().term
        with self._restarting:
            self.redis.put_aside()
            self.redis.start()
            said = self._driver.failed(STUCK_SECONDS)
            if LOST not in said:
                raise Retry(f"the store came back empty, and the flow has not stopped for it: {said or 'it runs'}")
            self.redis.put_back()
            self.redis.start()
            self._driver.start("--resume")
        self.until(lambda: self._journal().term > term, "the new controller")

    # --- watching ------------------------------------------------------------------------------------------------

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STUCK_SECONDS
        while not done():
            with self._restarting:
                problem = self._driver.problem()
            if problem:
                raise Retry(problem)
            if time.monotonic() > deadline:
                raise Retry(f"{what}: not within {STUCK_SECONDS:.0f} s; {self._situation()}")
            time.sleep(POLL_SECONDS)

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, "a rest")

    def _journal(self) -> Journal:
        """The newest that could be read: while the store is away, that of before."""
        try:
            self._known = self._driver.job.journal
        except Retry:
            if self._known is None:
                raise
        return self._known

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
        journal = self._journal()
        newest = f"results up to window {self.reading.reached()} of {self.writing.window()}"
        return "\n  ".join([f"{newest}, journal {journal.version}", *map(str, journal.entries.values())])
