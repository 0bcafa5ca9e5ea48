"""Slots that somebody else's scheduler gives: each has a thread here that holds it until its worker has ended.

What Spark and Ray have in common. They give the place and nothing else: no row passes through them, and their retry of
a task is never ours (one that came back would be a new, empty worker under an old name, so nothing is retried). Workers
meet in the job directory, where each leaves its process id; so they run on this host.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from seep.backends.process import Process
from seep.runtime.job import JobDirectory

GOODBYE_SECONDS = 10.0


class HeldSlots(ABC):
    """`seep.runtime.slots.Backend`, for a scheduler that is started with the first slot."""

    scheduler = ""
    """Its name, for people."""

    def __init__(self, job: JobDirectory) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._slots: dict[str, threading.Thread] = {}
        self._doomed: set[str] = set()
        """Released before they ran."""
        self._ended: list[str] = []
        self._session: Any = None
        self._broken: Exception | None = None
        """Why there is no scheduler."""

    @abstractmethod
    def _start(self) -> Any:
        """Connect to the scheduler, or start one."""

    @abstractmethod
    def _hold(self, session: Any, worker: str) -> None:
        """Run a worker and wait for its end."""

    @abstractmethod
    def _stop(self, session: Any) -> None:
        """Let go of the scheduler; end one that was started here."""

    def want(self, count: int) -> None:
        with self._lock:
            if self._broken is not None:
                return
            for _ in range(count - len(self._slots)):
                worker = f"{self.scheduler[0].lower()}{secrets.token_hex(4)}"
                thread = threading.Thread(target=self._life, args=(worker,), name=f"seep-slot-{worker}", daemon=True)
                self._slots[worker] = thread
                thread.start()

    def release(self, worker: str) -> None:
        self._signal(worker, signal.SIGTERM)

    def kill(self, worker: str) -> None:
        self._signal(worker, signal.SIGKILL)

    def events(self) -> list[str]:
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def workers(self) -> list[str]:
        with self._lock:
            return list(self._slots)

    def problem(self) -> str:
        if self._broken is None:
            return ""
        why = str(self._broken).partition("\n")[0]
        return f"{self.scheduler} cannot be started: {type(self._broken).__name__}: {why}"

    def close(self) -> None:
        deadline = time.monotonic() + GOODBYE_SECONDS
        for worker in self.workers():
            self.release(worker)
        while self.workers() and time.monotonic() < deadline:
            time.sleep(0.01)
        for worker in self.workers():
            self.kill(worker)
        self.detach()

    def detach(self) -> None:
        with self._starting:
            if self._session is not None:
                self._stop(self._session)
                self._session = None

    def _life(self, worker: str) -> None:
        """The driver's side of a slot: as long as the worker runs."""
        try:
            session = self._connected()
            if worker not in self._doomed:
                self._hold(session, worker)
        except Exception as error:
            # A killed worker fails its task: that is an ended slot like any other. Why is for the log.
            with self._job.log_path(worker).open("a") as log:
                log.write(f"{type(error).__name__}: {str(error)[:2000]}\n")
        finally:
            with self._lock:
                del self._slots[worker]
                self._ended.append(worker)
            self._job.unregister(worker)

    def _signal(self, worker: str, number: int) -> None:
        card = self._job.registered().get(worker)
        if card is None:
            self._doomed.add(worker)
        else:
            Process(card["process"], card["began"]).signal(number)

    def _connected(self) -> Any:
        with self._starting:
            if self._broken is not None:
                raise self._broken
            if self._session is None:
                try:
                    self._session = self._start()
                except Exception as error:
                    self._broken = error
                    raise
            return self._session
