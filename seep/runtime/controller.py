"""The controller's host: one loop around the pure controller, with the store, the transport and a backend.

It runs in a thread of the user's process or in a process of its own. A worker is lost when its connection closes or
its process ends, whichever is seen first. A controller that is started again on the same job reads the journal,
takes a higher term and adopts the workers that report to it; the old one, if it still lives, finds itself deposed.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

from seep.control.controller import Controller
from seep.control.deaths import SEE_LOGS
from seep.control.requests import Request, WorkerLost
from seep.model.ids import CONTROLLER, PartitionId
from seep.partition.contract import Graph
from seep.protocol import wire
from seep.protocol.effects import Effect, KillWorker, Publish, ReleaseWorker, Send, StoreReply, WantWorkers
from seep.protocol.journal import Journal
from seep.protocol.messages import Busy, Hello, Leave, Report, Status
from seep.runtime.background import Background
from seep.runtime.clock import now_ms
from seep.runtime.controllernumbers import Changes
from seep.runtime.heartbeat import speaker
from seep.runtime.hosts import this_host
from seep.runtime.job import JobDirectory
from seep.runtime.slots import Backend

TICK_MS = 10.0
RESTOCK_MS = 250.0
LISTEN_MS = 200.0

FINISHED = "finished"
STOPPED = "stopped"
DEPOSED = "deposed"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class View:
    """What others may see of the controller: whole values, replaced and never changed."""

    journal: Journal
    statuses: dict[PartitionId, Status]
    workers: tuple[str, ...]
    decisions: tuple[tuple[float, str], ...]
    busy: dict[PartitionId, Busy] = field(default_factory=dict)
    """Partitions that have been at one epoch for longer than a worker is usually silent."""
    wanted: int = 0
    """Workers."""
    shortage: str = ""
    """Why nothing more can be started on a slot of its own."""
    given_up: dict[int, str] = field(default_factory=dict)
    """Upgrades that came to nothing, by the number of their Replace, and why."""


class ControllerHost:
    def __init__(
        self, job: JobDirectory, backend: Backend, workers: int, spare: int | None = None, recover_in: int = 1
    ) -> None:
        """`spare`: warm workers beyond those in use; else as many as the flow's settings say. `recover_in`: into how
        many parts a dead partition of an operator comes back."""
        graph, settings = job.code()
        if spare is not None:
            settings = with_fields(settings, spare_workers=spare)
        self.job = job
        self.backend = backend
        self.machine = Controller(graph, settings, workers, recover_in, resumes=job.has_begun)
        self.store = job.store()
        self.transport = job.transport(CONTROLLER)
        self.background = Background(self.store, self.transport.wake)
        self.outcome = ""
        """Why the loop ended: finished, stopped, deposed, or failed."""
        self.report = ""
        """With ``failed``: what happened."""
        self.rejected = 0
        self.view = View(Journal(), {}, (), ())
        self.changes = Changes()
        self.ended = threading.Event()
        self._requests: deque[Request] = deque()
        self._killed: set[str] = set()
        """Because somebody asked for it."""
        self._wanted = 0
        self._wanted_ms = 0.0
        self._abandoned = threading.Event()
        self._thread: threading.Thread | None = None

    # --- from any thread ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="seep-controller", daemon=True)
        self._thread.start()

    def request(self, request: Request) -> None:
        self._requests.append(request)
        self.transport.wake()

    def kill(self, partition: PartitionId) -> str:
        """SIGKILL the worker that runs this partition; its id, or nothing when none does."""
        entry = self.view.journal.entries.get(partition)
        if entry is None or not entry.worker:
            return ""
        self._killed.add(entry.worker)
        self.backend.kill(entry.worker)
        return entry.worker

    @property
    def graph(self) -> Graph:
        """What runs now, with the code that operators were upgraded to."""
        codes = self.view.journal.codes
        return self.job.graph(codes) if codes else self.machine.graph

    def partition(self, operator: str, index: int) -> PartitionId:
        """The operator's live partition at this position in key-range order."""
        return self.view.journal.live(operator)[index].partition

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Until the loop has ended; False when the time is up first."""
        until_ms = math.inf if timeout_seconds is None else now_ms() + 1000 * timeout_seconds
        # By and by: Polars leaves SIGINT such that it does not end a wait for a lock, and Ctrl-C would wait, too.
        while not (ended := self.ended.wait(max(0.0, min(until_ms - now_ms(), LISTEN_MS)) / 1000)):
            if now_ms() >= until_ms:
                break
        if ended and self._thread is not None:
            self._thread.join()
        return ended

    def abandon(self) -> None:
        """Vanish without a word, as in a crash: the workers stay and keep working."""
        self._abandoned.set()
        self.transport.wake()

    # --- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._abandoned.is_set() and not self.outcome:
                self._round()
        except Exception as error:
            # The loop is over and no one else will say so: those who wait are told why.
            self.outcome, self.report = FAILED, f"Bug: {type(error).__name__}: {error}"
            raise
        finally:
            self._end()

    def _round(self) -> None:
        machine = self.machine
        for sender, parts in self.transport.poll(TICK_MS):
            try:
                message = wire.decode(parts)
            except wire.ProtocolError:
                self.rejected += 1
                continue
            # A worker speaks for itself only.
            if isinstance(message, Hello | Report | Busy) and message.worker == speaker(sender):
                self._perform(machine.handle(message, now_ms()))
        for worker in self.transport.lost():
            self._perform(machine.handle(WorkerLost(worker, worker in self._killed, ended=False), now_ms()))
        for worker in self.backend.events():
            self._perform(machine.handle(WorkerLost(worker, worker in self._killed), now_ms()))
        for answer in self.background.answers():
            if isinstance(answer, StoreReply):
                self._perform(machine.handle(answer, now_ms()))
        while self._requests:
            self._perform(machine.handle(self._requests.popleft(), now_ms()))
        self._perform(machine.tick(now_ms()))
        if now_ms() - self._wanted_ms > RESTOCK_MS:
            # Those that ended since are started anew; not at once, so that a worker that cannot start does not spin.
            self._perform([WantWorkers(self._wanted)])
        if machine.journal.version and not self.view.journal.version:
            self.job.begin()
        self.changes.look(machine.journal, now_ms(), machine.heard, machine.statuses)
        for poison in machine.journal.poisons[len(self.view.journal.poisons) :] if self.view.journal.version else ():
            print(f"{self.job.path.name}: the process died on {poison}; it is left out", file=sys.stderr, flush=True)
        busy = {said.partition: said for said in machine.attendance.busy.values() if said.partition is not None}
        self.view = View(
            machine.journal,
            dict(machine.statuses),
            tuple(machine.heard),
            tuple(machine.decisions),
            busy,
            max(0, machine.pool.want),
            machine.pool.shortage(now_ms()),
            dict(machine.given_up),
        )
        self._judge()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.transport.send(effect.to, wire.encode(effect.message), wire.lane(effect.message))
                case WantWorkers():
                    self._wanted, self._wanted_ms = effect.count, now_ms()
                    self.backend.want(effect.count)
                case ReleaseWorker():
                    self._dismiss(effect.worker)
                    self.backend.release(effect.worker)
                case KillWorker():
                    self._silence(effect.worker)
                case Publish():
                    raise TypeError("a controller has no sinks")
                case _:
                    self.background.perform(effect)

    def _judge(self) -> None:
        machine, stopping = self.machine, self.machine.journal.stopping
        if machine.deposed:
            self.outcome = DEPOSED
        elif machine.finished:
            self.outcome = FINISHED
        elif stopping == "stop":
            self.outcome = STOPPED
        elif stopping and stopping != "drain":
            where = f" in {self.job.path / 'workers'}" if stopping.endswith(SEE_LOGS) else ""
            self.outcome, self.report = FAILED, stopping + where
        elif problem := self.backend.problem():
            self.outcome, self.report = FAILED, problem

    def _silence(self, worker: str) -> None:
        """Only where a signal ends it at once; on another host it has no locks of a directory either."""
        card = self.job.registered().get(worker)
        if card is not None and card["host"] == this_host():
            self._killed.add(worker)
            self.backend.kill(worker)

    def _dismiss(self, worker: str) -> None:
        """A backend signals its workers; those on other hosts are told."""
        leave = Leave(worker)
        self.transport.send(worker, wire.encode(leave), wire.lane(leave))

    def _end(self) -> None:
        over = self.outcome in (FINISHED, STOPPED, FAILED)
        with contextlib.ExitStack() as last:  # from the last to the first, whatever fails on the way
            last.callback(self.ended.set)
            last.callback(self.backend.close if over else self.backend.detach)
            last.callback(self.transport.close)
            self.background.close()
            for worker in self.backend.workers() if over else ():
                self._dismiss(worker)
