"""A worker process: one loop around the pure machine.

    arrived messages, answers from the background  ->  Worker.handle  ->  effects: sent, or given to the background
    every few milliseconds                         ->  Worker.tick    ->  effects

Only this thread touches the machine; while it is inside one long piece of work, another says so (`heartbeat.py`). A
worker goes on working when the controller dies: it reports into the void until a new controller listens; only when
nobody has listened for long does it end itself. It is started as
``python -m seep.runtime.worker`` with SEEP_JOB (a directory) and SEEP_WORKER (its id) in the environment.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from seep.model.ids import CONTROLLER, PartitionId
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.protocol import wire
from seep.protocol.effects import Effect, KillWorker, Publish, ReleaseWorker, Send, WantWorkers
from seep.protocol.journal import SHADOW, Journal
from seep.protocol.messages import Leave
from seep.runtime.arrivals import Arrival, Arrivals
from seep.runtime.background import Background
from seep.runtime.clock import now_ms, wall_ms
from seep.runtime.deadletters import DeadLetters
from seep.runtime.exporter import Asked, Exporter
from seep.runtime.gaps import Gaps
from seep.runtime.heartbeat import Heartbeat, beside
from seep.runtime.hosts import this_place
from seep.runtime.job import JobDirectory
from seep.runtime.notes import StoreNotes
from seep.runtime.numbers import Snapshot, snapshot
from seep.runtime.precedence import Precedence
from seep.runtime.spill import spill_into
from seep.runtime.timekeeper import Timekeeper

TICK_MS = 10.0
IDLE_TICK_MS = 50.0
"""Of a warm worker that runs no partition yet."""
COLLECT_MS = 500.0
"""Between two looks for dead letters, and for what nobody needs any more."""
ORPHAN_MS = 30_000.0
"""Without a controller for this long, a worker ends itself."""
AWAY_MS = 1_000.0
"""A loop that was inside one piece of work for longer has not looked for the controller meanwhile."""


class WorkerHost:
    def __init__(self, job: JobDirectory, worker: str) -> None:
        graph, settings = job.code()
        self.job = job
        self.worker = worker
        self.machine = Worker(worker, graph, settings)
        self.machine.desk.spill = spill_into(job.path)
        self.machine.desk.perform = self._perform
        self.machine.desk.place = this_place()
        self.machine.desk.upgrade = job.upgrade
        self.machine.clock = self.machine.desk.clock = now_ms
        self.store = job.store()
        self.machine.desk.notes = StoreNotes(self.store)
        self.transport = job.transport(worker)
        self.background = Background(self.store, self.transport.wake)
        self.asked = Asked(self.transport.wake)
        self.exporter = Exporter(self.asked.take)
        self.letters = DeadLetters(job.path)
        self.time = Timekeeper()
        self.gaps = Gaps()
        self.precedence = Precedence()
        self.arrivals: dict[PartitionId, Arrivals] = {}
        self.recovered: dict[PartitionId, int] = {}
        """By partition: how often it came here because it was lost elsewhere."""
        self.heartbeat = Heartbeat(job.transport(beside(worker), listens=bool(job.network_address)), self.machine)
        self.stopping = False
        self.busy_ms = 0.0
        self.rejected = 0
        """Messages that were none."""
        self._ticked_ms = 0.0
        self._collected_ms = 0.0
        self._controller_ms = self._looked_ms = now_ms()

    def run(self) -> None:
        """Until told to stop."""
        self.job.register(self.worker, self.exporter.serve(self.job.address))
        self.heartbeat.start()
        try:
            timeout_ms = 0.0
            while not self.stopping and not self.machine.stopped:
                timeout_ms = self._round(timeout_ms)
        finally:
            self.letters.collect(self.machine.partitions.values())
            self.background.close()
            self.heartbeat.stop()
            self.transport.close()
            self.job.unregister(self.worker)

    def stop(self, *_: object) -> None:
        self.stopping = True
        self.transport.wake()

    def _round(self, timeout_ms: float) -> float:
        """One turn of the loop; how long the next one may wait."""
        arrived = self.transport.poll(timeout_ms)
        self.heartbeat.turn += 1
        began_ms = now_ms()
        for sender, parts in arrived:
            try:
                message = wire.decode(parts)
            except wire.ProtocolError:
                self.rejected += 1
                continue
            if isinstance(message, Leave):
                self.stopping |= sender == CONTROLLER
                continue
            before = self.machine.desk.journal
            self._perform(self.machine.handle(message, now_ms()))
            if self.machine.desk.journal is not before:
                self._note_recoveries(before)
        for answer in self.background.answers():
            self._perform(self.machine.handle(answer, now_ms()))
        at_work = False
        tick_ms = self._tick_ms()
        if self.machine.desk.more or now_ms() - self._ticked_ms >= tick_ms:
            self.machine.desk.more = False
            self._ticked_ms = now_ms()
            effects = self.machine.tick(self._ticked_ms, wall_ms())
            at_work = bool(effects)
            self._perform(effects)
        self._look_around(now_ms())
        if arrived or at_work:
            self.busy_ms += now_ms() - began_ms
        return 0.0 if self.machine.desk.more else max(0.0, self._ticked_ms + tick_ms - now_ms())

    def _tick_ms(self) -> float:
        """Sources cut by the clock; everything else waits for messages, or can wait."""
        partitions = self.machine.partitions.values()
        if any(isinstance(partition, SourcePartition) for partition in partitions):
            return min(max(1.0, self.machine.desk.settings.epoch_ms / 10), TICK_MS)
        return TICK_MS if partitions else IDLE_TICK_MS

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.transport.send(effect.to, wire.encode(effect.message), wire.lane(effect.message))
                case Publish():
                    partition = self.machine.partitions.get(effect.partition)
                    if isinstance(partition, SinkPartition):
                        self.background.publish(partition, effect, partial(self._runs, partition))
                case WantWorkers() | ReleaseWorker() | KillWorker():
                    raise TypeError(f"a worker asked for {effect}: only the controller may")
                case _:
                    self.background.perform(effect)

    def _runs(self, partition: SinkPartition) -> bool:
        """May be asked from another thread."""
        return self.machine.partitions.get(partition.entry.partition) is partition

    def _look_around(self, at_ms: float) -> None:
        self.time.look(self.machine.partitions.values(), self.machine.busy_ms, at_ms)
        self.gaps.look(self.machine.partitions.values(), self.machine.desk.journal, at_ms)
        partitions = self.machine.partitions.values()
        self.precedence.give_way(bool(partitions) and all(p.entry.role == SHADOW for p in partitions), at_ms)
        self.transport.lost()  # peers come back by themselves, or the controller says who took over
        away_ms, self._looked_ms = at_ms - self._looked_ms, at_ms
        if self.transport.connected(CONTROLLER) or away_ms > AWAY_MS:
            self._controller_ms = at_ms
        elif at_ms - self._controller_ms > ORPHAN_MS:
            print(f"{self.worker}: no controller for {ORPHAN_MS / 1000:.0f} s, stopping", file=sys.stderr)
            self.stopping = True
        if self.asked.wanted:
            self.asked.give(self._numbers())
        if at_ms - self._collected_ms > COLLECT_MS:
            self._collected_ms = at_ms
            self.letters.collect(self.machine.partitions.values())
            self.background.let_go()

    def _note_recoveries(self, before: Journal) -> None:
        for who, partition in self.machine.partitions.items():
            known = before.entries.get(who)
            if known is not None and known.worker and known.generation != partition.entry.generation:
                self.recovered[who] = self.recovered.get(who, 0) + 1

    def _numbers(self) -> Snapshot:
        transport, store = self.transport.statistics(), self.store.statistics()
        own: dict[str, float] = {
            "seep_worker_busy_seconds_total": self.busy_ms / 1000,
            "seep_worker_cpu_seconds_total": time.process_time(),
            "seep_worker_messages_sent_total": transport["sent"],
            "seep_worker_messages_received_total": transport["received"],
            "seep_worker_messages_dropped_total": transport["dropped"],
            "seep_worker_messages_rejected_total": self.rejected,
            "seep_worker_connections_refused_total": transport["refused"],
            "seep_worker_store_failures_total": self.background.store_failures,
            "seep_worker_publish_failures_total": self.background.publish_failures,
            "seep_worker_checkpoints_damaged_total": store["damaged_checkpoints"],
            "seep_worker_logs_torn_total": store["torn_tails"],
            "seep_worker_dead_letters_unwritten_total": self.letters.unwritten,
        }
        partitions = self.machine.partitions.values()
        counts = self.machine.statistics()
        saved, timed = dict(self.background.saved), self.time.timed
        arrivals, gaps = self._arrivals(), self.gaps.seen
        return snapshot(self.worker, own, counts, partitions, saved, self.recovered, timed, arrivals, gaps)

    def _arrivals(self) -> dict[PartitionId, Arrival | None]:
        found: dict[PartitionId, Arrival | None] = {}
        for who, partition in self.machine.partitions.items():
            if isinstance(partition, SourcePartition) and partition.running:
                found[who] = self.arrivals.setdefault(who, Arrivals()).look(partition, now_ms())
        return found


def run_worker(job_path: Path | str, worker: str) -> None:
    """The life of a worker process, from a fresh start or a fork."""
    host = WorkerHost(JobDirectory(job_path), worker)
    signal.signal(signal.SIGTERM, host.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the controller's to decide on
    gc.freeze()  # what is loaded by now stays: collections need not walk over it, which takes longer than an epoch
    host.run()


if __name__ == "__main__":
    run_worker(os.environ["SEEP_JOB"], os.environ["SEEP_WORKER"])
