"""A driver in a process of its own (`seep run`), so that it can be killed like anything else.

Its job is seen as anyone sees it: the journal in the store, the cards of the workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.machine import descendants
from seep.backends.process import Process
from seep.cli import client
from seep.errors import Retry
from seep.protocol.effects import ReadJournal
from seep.protocol.journal import Journal
from seep.runtime.home import job_path
from seep.runtime.job import JobDirectory, process_began

ROOT = Path(__file__).parents[1]
DRIVER_JVM = b"org.apache.spark.deploy.SparkSubmit"


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


class Driver:
    """`seep run APP OPTIONS` of a flow with this name."""

    def __init__(
        self,
        name: str,
        app: str,
        home: Path,
        options: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`app`: the text of it; `environment`: what it has besides ours."""
        self.name, self.job, self._options = name, FromOutside(name), options
        self._environment = {**os.environ, **(environment or {})}
        self._app, self._output = home / "app.py", home / "output"
        self._app.write_text(app)
        self._left: set[Process] = set()
        """Everything a driver had started when it was killed: most of it ends by itself."""
        self.start()

    def start(self, *more: str) -> None:
        call = "from seep.cli.main import main; main()"
        # Not a pipe: what a killed driver leaves behind would hold it open.
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", call, "run", str(self._app), *self._options, *more],
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """SIGKILL of the driver and its Java process."""
        below = descendants(self.process.pid)
        self._left |= {Process(one, process_began(one)) for one in below}
        java = [one for one in below if DRIVER_JVM in _command(one)]
        self.process.kill()
        for one in java:
            Process(one, process_began(one)).signal(signal.SIGKILL)
        self.process.wait()

    def drain(self, seconds: float) -> bool:
        """Stop the sources, let everything reach the sinks. False: not in this time."""
        client.ask(self.name, "POST", "stop", {"drain": True})
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if code:
            raise Retry(self.problem())
        return True

    def alive(self) -> dict[str, Process]:
        """Its workers that run."""
        cards = self.job.directory.registered().items()
        found = {worker: Process(card["process"], card["began"]) for worker, card in cards}
        return {worker: process for worker, process in found.items() if process.alive()}

    def failed(self, seconds: float) -> str:
        """What it says when it ends by itself; empty: it has not, in this time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        return self.problem()

    def problem(self) -> str:
        """Why it does not run any more; empty while it does."""
        code = self.process.poll()
        return "" if code is None else f"the driver has ended with {code}: {self._last_words()}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for process in self._left:
            process.signal(signal.SIGKILL)

    def _last_words(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
