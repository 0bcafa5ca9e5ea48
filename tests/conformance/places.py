"""Where the flow of the suite can run, behind the same few verbs: as a job of real processes, or in the simulator."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil

from demo.executors import executor_of
from seep.backends.process import Process
from seep.control.requests import ScaleTo
from seep.running.chaos import Verdict
from seep.running.job import Job
from seep.testing import Driver, chaos
from tests.conformance.chains import chained, row
from tests.scenarios import oracles
from tests.scenarios.oracles import epoch_of, process_of, until

ROWS = 40_000
RATE = 300.0
EPOCHS = 20
"""Reports may be some epochs old: what comes after so many was made after what was just done."""
STARTING_SECONDS = 120.0
SIMULATED_ROWS = 200
SIMULATED_PATIENCE_MS = 60_000.0


class RealPlace:
    """A job that has just begun to work."""

    rows_maximum = ROWS

    def __init__(self, job: Job, gate: Path) -> None:
        self.job, self.gate = job, gate
        self.seen: dict[str, Process] = {}
        until(lambda: epoch_of(job, "counts") > EPOCHS or job.host.outcome, "the flow to run", STARTING_SECONDS)
        assert job.host.report == ""

    def advance(self) -> None:
        oracles.advance(self.job, EPOCHS, seconds=60.0)

    def kill(self) -> None:
        killed = self.job.kill("count", 0)["worker"]
        self._gone(killed)

    def scale(self, count: int) -> None:
        self.job.scale("count", count)

    def scale_and_kill(self, count: int, victim: str) -> None:
        oracles.scale_and_kill(self.job, count, victim)

    def chaos(self, plan: str, seconds: float) -> Verdict:
        found = chaos(self.job, plan, seconds)
        self.job.scale("count", 2)
        return found

    def kill_executor(self) -> None:
        """The Java process whose child runs the operator."""
        worker, executor = self._executor()
        os.kill(executor, signal.SIGKILL)
        self._gone(worker)

    def kill_daemon(self) -> None:
        """The daemon that has started that executor."""
        worker, executor = self._executor()
        os.kill(psutil.Process(executor).ppid(), signal.SIGKILL)
        self._gone(worker)

    def workers(self) -> set[str]:
        """Those whose process runs."""
        for worker, card in self.job.directory.registered().items():
            self.seen[worker] = Process.of(card)
        return {worker for worker, process in self.seen.items() if process.alive()}

    def one_too_many(self) -> None:
        """A worker more than the flow needs: it, or one that has been idle for longer, is to end."""
        backend, before = self.job.host.backend, self.workers()
        backend.want(len(backend.workers()) + 1)
        until(lambda: self.workers() - before, "another one to run")
        crowd = self.workers()
        until(lambda: crowd - self.workers(), "one to be released")

    def addresses(self) -> set[str]:
        """Where this process and those it has started listen, as they stand in the system's tables."""
        found = set()
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        return found

    def given(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.job.result()["counts"].to_pylist()
        return rows

    def finish(self) -> list[dict[str, Any]]:
        self.workers()
        self.gate.touch()
        rows: list[dict[str, Any]] = self.job.wait(60)["counts"].to_pylist()
        backend, directory = self.job.host.backend, self.job.directory
        until(lambda: not (self.workers() or backend.workers() or directory.registered()), "the workers to end", 5.0)
        return rows

    def close(self) -> None:
        self.job.close()

    def _executor(self) -> tuple[str, int]:
        worker = self.job.journal.live("count")[0].worker
        executor = executor_of(process_of(self.job.directory, worker))
        assert executor
        return worker, executor

    def _gone(self, worker: str) -> None:
        until(lambda: worker not in self.job.host.view.workers, f"{worker} to be missed")


class SimulatedPlace:
    """The same flow in virtual time; its rows are fed by hand."""

    rows_maximum = 0

    def __init__(self, path: Path) -> None:
        self.driver = Driver(chained("simulated", ROWS, RATE, path / "gate"))
        self.world = self.driver.world
        self.advance()

    def advance(self) -> None:
        first = self.rows_maximum
        self.rows_maximum = first + SIMULATED_ROWS
        self.driver.feed("numbers", [row(number) for number in range(first, self.rows_maximum)])

    def kill(self) -> None:
        self.driver.kill("count", 0)

    def scale(self, count: int) -> None:
        self.driver.scale("count", count)

    def scale_and_kill(self, count: int, victim: str) -> None:
        self.world.request(ScaleTo("count", count))
        self._until(lambda: oracles.victim_of(self.world.controller.journal, victim) in self.world.nodes)
        self.world.crash(oracles.victim_of(self.world.controller.journal, victim))
        journal = self.world.controller
        self._until(lambda: len(journal.journal.live("count")) == count and not journal.journal.replaces)

    def workers(self) -> set[str]:
        return {node.name for node in self.world.live_workers()}

    def one_too_many(self) -> None:
        self.world.start_worker()
        crowd = self.workers()
        self._until(lambda: crowd - self.workers())

    def given(self) -> list[dict[str, Any]]:
        return self.driver.output("counts")

    def finish(self) -> list[dict[str, Any]]:
        self.driver.close()
        self.driver.assert_exactly_once()
        return self.given()

    def close(self) -> None:
        """Nothing runs."""

    def _until(self, condition: Any) -> None:
        assert self.world.run_until(lambda: bool(condition()), self.world.now_ms + SIMULATED_PATIENCE_MS)


Place = RealPlace | SimulatedPlace
