"""A job under load whose driver is a process of its own, so that it can be killed like anything else.

It is seen as anyone sees it: arrivals at the sink, the journal in the store, the cards of the workers. The load is
released by the clock, so it goes on while there is no driver.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drive import STUCK_SECONDS, Recorded, Watched, given_rows
from benchmarks.driver import Driver
from benchmarks.load import Load
from benchmarks.machine import descendants
from demo.executors import executor_of
from seep.backends.process import Process
from seep.cli import client
from seep.errors import Retry
from seep.protocol.journal import Entry
from seep.runtime.job import process_began

APP = """
from pathlib import Path
from benchmarks.arrivals import ArrivalSink
from benchmarks.load import Load
load, sink = Load({keys}, {seed}, {cold_keys}), ArrivalSink(Path({path!r}))
flow = load.flow({name!r}, {rate}, sink, {checkpoint!r}, {parts}, {epoch!r})
"""
STARTING_SECONDS = 180.0
WORKING_OFF_SECONDS = 180.0
"""What has piled up while there was no driver takes longer than after a lost worker."""


class Apart(Watched):
    """`seep run APP OPTIONS` of `Load.flow`."""

    def __init__(
        self,
        name: str,
        load: Load,
        rate: float,
        timing: tuple[str, str],
        parts: int,
        home: Path,
        options: Sequence[str],
    ) -> None:
        """`timing`: how often there is a checkpoint, and how long an epoch is."""
        super().__init__(home / "arrivals", rate)
        app = APP.format(
            keys=load.keys,
            seed=load.seed,
            cold_keys=load.cold_keys,
            name=name,
            rate=rate,
            path=str(self.path),
            checkpoint=timing[0],
            epoch=timing[1],
            parts=parts,
        )
        self._driver = Driver(name, app, home, options)

    def kill_driver(self) -> tuple[int, int]:
        """SIGKILL of the driver and its Java process, then `--resume`. When that was called, and when the new
        controller had taken over: what arrives before is the old one's."""
        term = self.recorded.journal.term
        self._driver.kill()
        resumed_ns = time.monotonic_ns()
        self._driver.start("--resume")
        # Before it takes a higher term, a new driver has ended whatever workers were left. A new worker would be no
        # sign: it may be one that the old driver had asked for just before.
        self.until(lambda: self.recorded.journal.term > term, "the new controller", STARTING_SECONDS)
        return resumed_ns, time.monotonic_ns()

    # --- as `Watched` --------------------------------------------------------------------------------------------

    @property
    def recorded(self) -> Recorded:
        return self._driver.job

    def status(self) -> dict[str, Any]:
        return client.ask(self._driver.name, "GET", "status")

    def problem(self) -> str:
        return self._driver.problem()

    def kill(self, worker: str) -> None:
        self._driver.alive()[worker].signal(signal.SIGKILL)

    def drain(self) -> dict[int, int]:
        if not self._driver.drain(2 * STUCK_SECONDS):
            raise Retry(f"the flow has not drained; {self._situation()}")
        self.arrivals += self._tail.news()
        return given_rows(self.recorded)

    def close(self) -> None:
        self._driver.close()

    # --- executors -----------------------------------------------------------------------------------------------

    def by_executor(self) -> dict[int, list[Entry]]:
        """The live partitions of each executor that runs any."""
        alive, found = self._driver.alive(), dict[int, list[Entry]]()
        for worker, entries in self.by_worker().items():
            executor = executor_of(alive[worker].number) if worker in alive else 0
            if executor:
                found.setdefault(executor, []).extend(entries)
        return found

    def kill_executor(self, executor: int) -> int:
        """SIGKILL of its Java process and of all below, as if its container had gone: workers that live a little longer
        would give rows after the kill. When that was."""
        whole = [Process(one, process_began(one)) for one in (executor, *descendants(executor))]
        at_ns = time.monotonic_ns()
        for process in whole:
            process.signal(signal.SIGKILL)
        return at_ns

    def is_warm(self) -> bool:
        """Is there a worker with nothing to do, and does every partition have one?"""
        journal = self.recorded.journal
        used = {entry.worker for entry in journal.entries.values()}
        return "" not in used and bool(self._driver.alive().keys() - used)
