"""A job whose driver is a process of its own (`seep run`), so that it can be killed like anything else.

It is seen as anyone sees it: arrivals at the sink, the journal in the store, the cards of the workers. The load is
released by the clock, so it goes on while there is no driver.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drive import STUCK_SECONDS, Recorded, Watched, given_rows
from benchmarks.load import Load
from benchmarks.machine import descendants
from demo.executors import executor_of
from seep.backends.process import Process
from seep.cli import client
from seep.errors import Retry
from seep.protocol.effects import ReadJournal
from seep.protocol.journal import Entry, Journal
from seep.runtime.home import job_path
from seep.runtime.job import JobDirectory, process_began

ROOT = Path(__file__).parents[1]
APP = """
from pathlib import Path
from benchmarks.arrivals import ArrivalSink
from benchmarks.load import Load
load, sink = Load({keys}, {seed}, {cold_keys}), ArrivalSink(Path({path!r}))
flow = load.flow({name!r}, {rate}, sink, {checkpoint!r}, {parts}, {epoch!r})
"""
DRIVER_JVM = b"org.apache.spark.deploy.SparkSubmit"
STARTING_SECONDS = 180.0
WORKING_OFF_SECONDS = 180.0
"""What has piled up while there was no driver takes longer than after a lost worker."""


class FromOutside:
    """A job's directory and journal, read from the disk."""

    def __init__(self, name: str) -> None:
        self.path = job_path(name)

    @property
    def directory(self) -> JobDirectory:
        return JobDirectory(self.path)

    @property
    def journal(self) -> Journal:
        reply = self.directory.store().perform(ReadJournal(0))
        if reply is None or not isinstance(reply.value, Journal):
            raise Retry(f"the job in {self.path} has no journal")
        return reply.value


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
        self.name, self.options = name, options
        self.app, self.output = home / "app.py", home / "output"
        self.app.write_text(
            APP.format(
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
        )
        self._job = FromOutside(name)
        self._left: set[Process] = set()
        """Everything a driver had started when it was killed: most of it ends by itself."""
        self._run()

    # --- the driver ----------------------------------------------------------------------------------------------

    def _run(self, *more: str) -> None:
        call = "from seep.cli.main import main; main()"
        # Not a pipe: what a killed driver leaves behind would hold it open.
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", call, "run", str(self.app), *self.options, *more],
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def kill_driver(self) -> tuple[int, int]:
        """SIGKILL of the driver and its Java process, then `--resume`. When that was called, and when the new
        controller had taken over: what arrives before is the old one's."""
        term = self._job.journal.term
        self._kill_driver()
        resumed_ns = time.monotonic_ns()
        self._run("--resume")
        # Before it takes a higher term, a new driver has ended whatever workers were left. A new worker would be no
        # sign: it may be one that the old driver had asked for just before.
        self.until(lambda: self._job.journal.term > term, "the new controller", STARTING_SECONDS)
        return resumed_ns, time.monotonic_ns()

    def _kill_driver(self) -> None:
        below = descendants(self.process.pid)
        self._left |= {Process(one, process_began(one)) for one in below}
        java = [one for one in below if DRIVER_JVM in _command(one)]
        self.process.kill()
        for one in java:
            Process(one, process_began(one)).signal(signal.SIGKILL)
        self.process.wait()

    # --- as `Watched` --------------------------------------------------------------------------------------------

    @property
    def recorded(self) -> Recorded:
        return self._job

    def status(self) -> dict[str, Any]:
        return client.ask(self.name, "GET", "status")

    def problem(self) -> str:
        code = self.process.poll()
        return "" if code is None else f"the driver has ended with {code}: {self._last_words()}"

    def kill(self, worker: str) -> None:
        self._alive()[worker].signal(signal.SIGKILL)

    def drain(self) -> dict[int, int]:
        client.ask(self.name, "POST", "stop", {"drain": True})
        try:
            code = self.process.wait(2 * STUCK_SECONDS)
        except subprocess.TimeoutExpired:
            raise Retry(f"the flow has not drained; {self._situation()}") from None
        if code:
            raise Retry(self.problem())
        self.arrivals += self._tail.news()
        return given_rows(self._job)

    def close(self) -> None:
        if self.process.poll() is None:
            self._kill_driver()
        for process in self._left:
            process.signal(signal.SIGKILL)

    # --- executors -----------------------------------------------------------------------------------------------

    def by_executor(self) -> dict[int, list[Entry]]:
        """The live partitions of each executor that runs any."""
        alive, found = self._alive(), dict[int, list[Entry]]()
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
        journal = self._job.journal
        used = {entry.worker for entry in journal.entries.values()}
        return "" not in used and bool(self._alive().keys() - used)

    def _alive(self) -> dict[str, Process]:
        cards = self._job.directory.registered().items()
        found = {worker: Process(card["process"], card["began"]) for worker, card in cards}
        return {worker: process for worker, process in found.items() if process.alive()}

    def _last_words(self) -> str:
        lines = self.output.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
