"""Slots that somebody else's scheduler gives: each has a thread here that holds it until its worker has ended.

What Spark and Ray have in common. They give the place and nothing else: no row passes through them, and their retry of
a task is never ours (one that came back would be a new, empty worker under an old name, so nothing is retried). Workers
meet in the job directory, where each leaves its host and process id. A worker on this host is signalled. One on another
is told to leave by the controller, and killed by a thread of its own; by its scheduler, if it does not hear. Workers of
an earlier driver are not adopted: what held them is gone or going, so they are ended before the first one is started.
"""

from __future__ import annotations

import re
import secrets
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from seep.backends.process import Process, end_workers, kill_elsewhere
from seep.backends.slot import UNFIT, Errand
from seep.backends.unborn import Unborn
from seep.errors import Misuse, Retry, SeepError, report_of
from seep.runtime.hosts import this_host
from seep.runtime.job import JobDirectory

GOODBYE_SECONDS = 10.0
STILLBORN = 3
"""So many workers in a row may fail before they run, while no other one runs."""
STARTING_SECONDS = 60.0
"""A host that is found to be unfit so soon after the first slot was asked for refuses the flow; later ones are left
out, and asked again after a while."""
AGAIN_SECONDS = 5.0


class HeldSlots(ABC):
    """`seep.runtime.slots.Backend`, for a scheduler that is started with the first slot."""

    scheduler = ""
    """Its name, for people."""

    def __init__(self, job: JobDirectory, address: str = "") -> None:
        """`address`: where workers on other hosts find this one; empty: there are none."""
        self._job = job
        self._errand = Errand(str(job.path), secrets.token_hex(8), sys.version_info[:2], address)
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._slots: dict[str, threading.Thread] = {}
        self._doomed: set[str] = set()
        """Released before they ran."""
        self._ended: list[str] = []
        self._session: Any = None
        self._closing = threading.Event()
        self._closed = threading.Event()
        self._broken: Exception | None = None
        """Why there is no scheduler."""
        self._stillborn = 0
        self._unborn = Unborn()
        self._said = ""
        """By the worker that failed last."""
        self._began = 0.0
        end_workers(job)
        job.meet(address)
        (job.path / "stamp").write_text(self._errand.stamp)

    @abstractmethod
    def _start(self) -> Any:
        """Connect to the scheduler, or start one."""

    @abstractmethod
    def _hold(self, session: Any, worker: str) -> str:
        """Run a worker (`run_slot`) and wait for its end; gives back what that gave."""

    @abstractmethod
    def _kill(self, session: Any, worker: str) -> None:
        """End a worker on another host that does not hear, from outside."""

    def _reason(self, error: Exception) -> str:
        """Why its host cannot run a worker, if that is what the scheduler says; empty: an accident."""
        return ""

    @abstractmethod
    def _lives(self, session: Any) -> bool:
        """Can it still give slots?"""

    @abstractmethod
    def _stop(self, session: Any) -> None:
        """Let go of the scheduler, dead or alive; end one that was started here."""

    @abstractmethod
    def _break_off(self) -> None:
        """A start that takes long, since a cluster does not answer perhaps, is not wanted any more."""

    def want(self, count: int) -> None:
        with self._lock:
            if self._broken is not None or self._closed.is_set():
                return
            for _ in range(count - len(self._slots)):
                worker = f"{self.scheduler[0].lower()}{secrets.token_hex(4)}"
                thread = threading.Thread(target=self._life, args=(worker,), name=f"seep-slot-{worker}", daemon=True)
                self._slots[worker] = thread
                thread.start()

    def release(self, worker: str) -> None:
        self._signal(worker, signal.SIGTERM)

    def kill(self, worker: str) -> None:
        card = self._job.registered().get(worker)
        if card is None or card["host"] == this_host():
            self._signal(worker, signal.SIGKILL)
        elif not kill_elsewhere(self._job, worker) and worker in self.workers():
            self._kill(self._session, worker)

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
        if self._stillborn >= STILLBORN or self._unborn.hopeless():
            return f"workers cannot be started: {self._said}; see {self._job.path / 'workers'}"
        return ""

    def close(self) -> None:
        self._closing.set()
        began = time.monotonic()
        ran = self._running()
        for worker in self.workers():
            self.release(worker)
        while ran & set(self.workers()) and time.monotonic() < began + GOODBYE_SECONDS:
            time.sleep(0.01)
        for worker in self._running():
            self.kill(worker)
        # Those that have not begun to run go with the scheduler.
        self.detach()
        while self.workers() and time.monotonic() < began + 2 * GOODBYE_SECONDS:
            time.sleep(0.01)

    def detach(self) -> None:
        self._closed.set()
        if not self._starting.acquire(timeout=GOODBYE_SECONDS):
            self._break_off()
            if not self._starting.acquire(timeout=GOODBYE_SECONDS):
                return  # the thread that waits for it lets go of what comes of it
        try:
            self._let_go()
        finally:
            self._starting.release()

    def _let_go(self) -> None:
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
                self._judge(worker, self._hold(session, worker))
        except Exception as error:
            # A killed worker fails its task: that is an ended slot like any other. Why is for the log.
            self._log(worker, f"{type(error).__name__}: {str(error)[:2000]}")
            if why := self._reason(error):
                self._judge(worker, why)
            elif self._running():  # it, too, if it was killed: then its card is still there
                self._unborn.lives()
            elif worker not in self._doomed:
                self._unborn.ended(worker)
                self._said = reason_of(error)
            self._look()
        finally:
            with self._lock:  # with its card goes the slot: nobody sees one without the other
                self._job.unregister(worker)
                del self._slots[worker]
                self._ended.append(worker)

    def _log(self, worker: str, line: str) -> None:
        with self._job.log_path(worker).open("a") as log:
            log.write(f"{line}\n")

    def _look(self) -> None:
        """A scheduler that is gone gives no slot again: without a word the flow would wait for one for ever."""
        session = self._session
        if session is not None and not self._lives(session) and not self._closed.is_set():
            self._broken = Retry(f"{self.scheduler} has ended under the flow; go on with --resume")

    def _judge(self, worker: str, said: str) -> None:
        """One that fails where others run has met with an accident; where none does, the next will not do better."""
        self._said = said.removeprefix(UNFIT)
        if not said:
            self._unborn.lives()
        self._stillborn = self._stillborn + 1 if said and not self._running() else 0
        if said.startswith(UNFIT):
            self._log(worker, said)
            if time.monotonic() < self._began + STARTING_SECONDS:
                self._broken = self._broken or Misuse(self._said)
            else:
                self._closing.wait(AGAIN_SECONDS)

    def _signal(self, worker: str, number: int) -> None:
        card = self._job.registered().get(worker)
        if card is None:
            self._doomed.add(worker)
        else:
            Process.of(card).signal(number)

    def _connected(self) -> Any:
        with self._starting:
            if self._broken is not None:
                raise self._broken
            if self._closed.is_set():
                raise Retry(f"{self.scheduler} was let go of")
            if self._session is None:
                try:
                    self._session = self._start()
                    self._began = time.monotonic()
                except Exception as error:
                    self._broken = error
                    raise
            if self._closed.is_set():
                self._let_go()
                raise Retry(f"{self.scheduler} was let go of")
            return self._session


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
