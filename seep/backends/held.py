"""Slots that somebody else's scheduler gives: each has a thread here that holds it until its worker has ended.

What Spark and Ray have in common. They give the place and nothing else: no row passes through them, and their retry of
a task is never ours (one that came back would be a new, empty worker under an old name, so nothing is retried). Workers
meet in the job directory, where each leaves its process id; so they run on this host. Workers of an earlier driver are
not adopted: what held them is gone or going, so they are ended before the first new one is started.
"""

from __future__ import annotations

import re
import secrets
import signal
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any

from seep.backends.process import Process, end_workers
from seep.errors import Retry, SeepError, report_of
from seep.runtime.job import JobDirectory

GOODBYE_SECONDS = 10.0
STILLBORN = 3
"""So many workers in a row may fail before they run, while no other one runs."""


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
        self._closed = False
        self._broken: Exception | None = None
        """Why there is no scheduler."""
        self._stillborn = 0
        self._said = ""
        """By the worker that failed last."""
        end_workers(job)

    @abstractmethod
    def _start(self) -> Any:
        """Connect to the scheduler, or start one."""

    @abstractmethod
    def _hold(self, session: Any, worker: str) -> str:
        """Run a worker (`run_slot`) and wait for its end; gives back what that gave."""

    @abstractmethod
    def _lives(self, session: Any) -> bool:
        """Can it still give slots?"""

    @abstractmethod
    def _stop(self, session: Any) -> None:
        """Let go of the scheduler, dead or alive; end one that was started here."""

    def want(self, count: int) -> None:
        with self._lock:
            if self._broken is not None or self._closed:
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
        if self._broken is not None:
            if isinstance(self._broken, SeepError):
                return report_of(self._broken, str(self._broken))
            return report_of(Retry(""), f"{self.scheduler} cannot be started: {reason_of(self._broken)}")
        if self._stillborn >= STILLBORN:
            return f"workers cannot be started: {self._said}; see {self._job.path / 'workers'}"
        return ""

    def close(self) -> None:
        began = time.monotonic()
        ran = self._running()
        for worker in self.workers():
            self.release(worker)
        while ran & set(self.workers()) and time.monotonic() < began + GOODBYE_SECONDS:
            time.sleep(0.01)
        end_workers(self._job)
        # Those that have not begun to run go with the scheduler.
        self.detach()
        while self.workers() and time.monotonic() < began + 2 * GOODBYE_SECONDS:
            time.sleep(0.01)

    def detach(self) -> None:
        with self._starting:
            self._closed = True
            session, self._session = self._session, None
            if session is not None:
                self._stop(session)

    def _running(self) -> set[str]:
        return self._job.registered().keys() & set(self.workers())

    def _life(self, worker: str) -> None:
        """The driver's side of a slot: as long as the worker runs."""
        try:
            session = self._connected()
            if worker not in self._doomed:
                self._judge(self._hold(session, worker))
        except Exception as error:
            # A killed worker fails its task: that is an ended slot like any other. Why is for the log.
            with self._job.log_path(worker).open("a") as log:
                log.write(f"{type(error).__name__}: {str(error)[:2000]}\n")
            self._look()
        finally:
            self._job.unregister(worker)
            with self._lock:
                del self._slots[worker]
                self._ended.append(worker)

    def _look(self) -> None:
        """A scheduler that is gone gives no slot again: without a word the flow would wait for one for ever."""
        session = self._session
        if session is not None and not self._lives(session) and not self._closed:
            self._broken = Retry(f"{self.scheduler} has ended under the flow; go on with --resume")

    def _judge(self, said: str) -> None:
        """One that fails where others run has met with an accident; where none does, the next will not do better."""
        self._said = said
        self._stillborn = self._stillborn + 1 if said and not self._running() else 0

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
            if self._closed:
                raise Retry(f"{self.scheduler} was let go of")
            if self._session is None:
                try:
                    self._session = self._start()
                except Exception as error:
                    self._broken = error
                    raise
            return self._session


def run_slot(path: str, worker: str) -> str:
    """The far side of a slot; empty, or what the worker failed with."""
    from seep.runtime.worker import run_worker

    try:
        run_worker(path, worker)
    except Exception as error:
        with JobDirectory(path).log_path(worker).open("a") as log:
            traceback.print_exc(file=log)
        return f"{type(error).__name__}: {error}"
    return ""


def reason_of(error: Exception) -> str:
    """An error in one line; of one that came out of Java, what Java said.

    >>> reason_of(ValueError("no such place\\n  at line 7"))
    'ValueError: no such place'
    >>> reason_of(RuntimeError("An error occurred while calling x.\\n: java.lang.Wrong: no such place\\n\\tat y"))
    'java.lang.Wrong: no such place'
    """
    text = str(error)
    java = re.search(r"^: (.+)$", text, re.MULTILINE)
    return java[1] if java else f"{type(error).__name__}: {text.partition(chr(10))[0]}"
