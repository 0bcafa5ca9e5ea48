"""Workers as processes of this machine, forked from a warm zygote.

A worker is known by its process id and start time, which also name workers that an earlier controller of the same
job left running: they are adopted. That a process has ended is read from the system, not from the zygote, so the
zygote's own death costs nothing but a new one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from seep.backends.needs import LOCAL_WORKERS
from seep.backends.process import ENVIRONMENT, Process, end_workers
from seep.backends.unborn import Unborn
from seep.runtime.job import JobDirectory, import_path, process_began

GOODBYE_SECONDS = 5.0
STILLBORN = 3
"""So many zygotes in a row may end before they have started a worker."""
STARTING_SECONDS = 60.0


class LocalBackend:
    def __init__(self, job: JobDirectory) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._heard = b""
        self._stillborn = 0
        """Zygotes, one after the other, that have started nobody."""
        self._starting: dict[str, float] = {}
        """Asked of the zygote, with the time after which they count as failed."""
        self._running: dict[str, Process] = {}
        self._doomed: dict[str, int] = {}
        """To be signalled as soon as they run."""
        self._unseen: set[str] = set()
        """They run, and have not registered yet."""
        self._unborn = Unborn()
        self._refused = ""
        """Why the latest zygote could not be started."""
        self._ended: list[str] = []
        if job.network_address:
            end_workers(job)  # it ran on several hosts: they would look for its controller there
            job.meet("")
        for worker, card in job.registered().items():
            process = Process.of(card)
            if process.alive():
                self._running[worker] = process
            else:
                job.unregister(worker)

    def want(self, count: int) -> None:
        with self._lock:
            self._look()
            # An operator may have more partitions than this machine has room for processes: then they share them.
            for _ in range(min(count, LOCAL_WORKERS) - len(self._running) - len(self._starting)):
                worker = f"w{secrets.token_hex(4)}"
                self._starting[worker] = time.monotonic() + STARTING_SECONDS
                try:
                    self._connection().sendall(f"{worker}\n".encode())
                except OSError as problem:  # the zygote has died, or none can be started now
                    self._starting[worker] = 0.0
                    self._refuse(worker, problem)

    def release(self, worker: str) -> None:
        self._signal(worker, signal.SIGTERM)

    def kill(self, worker: str) -> None:
        self._signal(worker, signal.SIGKILL)

    def events(self) -> list[str]:
        with self._lock:
            self._look()
            ended, self._ended = self._ended, []
        return ended

    def workers(self) -> list[str]:
        with self._lock:
            return [*self._running, *self._starting]

    def problem(self) -> str:
        """Why no worker can be had; empty: they can."""
        if self._stillborn < STILLBORN and not self._unborn.hopeless():
            return ""
        if self._refused:
            return f"workers cannot be started: {self._refused}"
        log = self._job.log_path("zygote" if self._stillborn >= STILLBORN else self._unborn.latest)
        # The next zygote may be writing already: its last whole words are the error of the one before.
        text = log.read_text(errors="replace") if log.exists() else ""
        lines = [line for line in text.splitlines() if line and not line[0].isspace()]
        said = [line for line in lines if not line.startswith("Traceback")] or ["nothing was written"]
        return f"workers cannot be started: {said[-1]}; see {log}"

    def close(self) -> None:
        for worker in self.workers():
            self.release(worker)
        deadline = time.monotonic() + GOODBYE_SECONDS
        while self.workers():
            if time.monotonic() > deadline:
                for worker in self.workers():
                    self.kill(worker)
            time.sleep(0.002)
            self.events()
        self.detach()

    def detach(self) -> None:
        with self._lock:
            self._end_zygote()

    def _signal(self, worker: str, number: int) -> None:
        with self._lock:
            self._look()
            if worker in self._running:
                self._unseen.discard(worker)
                self._running[worker].signal(number)
            elif worker in self._starting:
                self._doomed[worker] = number

    def _look(self) -> None:
        """Who has started, who has ended."""
        self._listen()
        self._see()
        now = time.monotonic()
        gone = [w for w, process in self._running.items() if not process.alive()]
        gone += [w for w, until in self._starting.items() if until < now]
        for worker in gone:
            if worker in self._unseen and not self._running.keys() - self._unseen - set(gone):
                self._unborn.ended(worker)
            self._unseen.discard(worker)
            self._running.pop(worker, None)
            self._starting.pop(worker, None)
            self._doomed.pop(worker, None)
            self._job.unregister(worker)
        self._ended += gone

    def _see(self) -> None:
        """Who has registered; a card goes with its worker, so this is not to be found out when that has ended."""
        if self._unseen and (seen := self._unseen & self._job.registered().keys()):
            self._unseen -= seen
            self._unborn.lives()

    def _listen(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                # The zygote is gone, and with it what it was asked for; it is started again when one is wanted.
                self._end_zygote()
                self._stillborn += 1
                self._starting = dict.fromkeys(self._starting, 0.0)
                break
            self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._stillborn = 0
            worker, _, number = line.decode().partition(" ")
            process = Process(int(number), process_began(int(number)))
            self._running[worker] = process
            self._starting.pop(worker, None)
            if worker in self._doomed:
                process.signal(self._doomed.pop(worker))
            else:
                self._unseen.add(worker)

    def _refuse(self, worker: str, problem: OSError) -> None:
        """Too many processes, no memory: that may pass."""
        if self._control is None:
            self._refused = f"{type(problem).__name__}: {problem}"
            if not self._running:
                self._unborn.ended(worker)

    def _connection(self) -> socket.socket:
        if self._control is None:
            with contextlib.ExitStack() as failed:
                ours, theirs = socket.socketpair()
                failed.enter_context(ours)
                with theirs, self._job.log_path("zygote").open("ab") as log:
                    self._zygote = subprocess.Popen(
                        [sys.executable, "-m", "seep.backends.zygote"],
                        env=worker_environment(self._job.path) | {"SEEP_CONTROL": str(theirs.fileno())},
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                failed.pop_all()
            self._control, self._refused = ours, ""
        return self._control

    def _end_zygote(self) -> None:
        if self._control is not None and self._zygote is not None:
            self._control.close()
            self._zygote.kill()  # it may be importing still; there is nothing in it to be saved
            self._zygote.wait()
            self._control = self._zygote = None


def worker_environment(job_path: Path) -> dict[str, str]:
    """What a worker's process needs to find; never a secret."""
    # What the parent can import its workers can: the flow's code may name modules beside the user's script.
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(import_path()), "SEEP_JOB": str(job_path)}
