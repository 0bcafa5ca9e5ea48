"""A worker: the partitions of one slot, and nothing but what the journal says about them.

It starts, restarts and drops partitions so that it runs exactly the entries the newest journal gives it. It reports,
level-triggered, so that no report has to arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import ParamSpec

from seep.model.ids import CONTROLLER, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.partition.copies import Holder
from seep.partition.desk import Desk
from seep.partition.operator import OperatorPartition
from seep.partition.pulse import Work
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.protocol.effects import Effect, Published, StoreReply
from seep.protocol.journal import Entry
from seep.protocol.messages import (
    Accepted,
    Backup,
    Busy,
    Fetch,
    Frame,
    Held,
    Hello,
    Holding,
    Leave,
    Message,
    Plan,
    Refused,
    Report,
    Subscribe,
)

Arguments = ParamSpec("Arguments")
LOST = "the store has lost what was written to it: bring its data back and resume, or restore from a savepoint"
Partition = OperatorPartition | SourcePartition | SinkPartition
KINDS: dict[str, type[OperatorPartition] | type[SourcePartition] | type[SinkPartition]] = {
    "operator": OperatorPartition,
    "source": SourcePartition,
    "sink": SinkPartition,
}


class Worker:
    def __init__(self, worker: str, graph: Graph, settings: Settings) -> None:
        self.worker = worker
        self.graph = graph
        self.desk = Desk(worker, settings)
        self.holder = Holder(self.desk)
        self.partitions: dict[PartitionId, Partition] = {}
        self.early: dict[tuple[PartitionId, str], Subscribe] = {}
        """Subscriptions to partitions that do not run here yet, or under a journal that has not come yet."""
        self.clock: Callable[[], float] | None = None
        """Set by a host that wants to know for how long each partition is at work (ms)."""
        self.busy_ms: dict[PartitionId, float] = {}
        self.at_work: Partition | None = None
        """Whose code runs now, if the host has set a clock."""
        self.reported_ms = -1e18
        self.stopped = False
        """The flow is over, or this worker is not part of it: the host may end the process."""

    def handle(self, event: Message | StoreReply | Published, now_ms: float) -> list[Effect]:
        self.desk.now_ms = now_ms
        match event:
            case StoreReply():
                self._timed(self._asker(event), self.desk.answer, event)
            case Published():
                partition = self.partitions.get(event.partition)
                if isinstance(partition, SinkPartition):
                    if event.generation in (None, partition.entry.generation):
                        partition.published(event)
            case Plan():
                self._adopt(event)
            case _:
                self._route(event)
        return self._finish()

    def tick(self, now_ms: float, wall_ms: int) -> list[Effect]:
        self.desk.now_ms = now_ms
        self.desk.wall_ms = wall_ms
        self.desk.tick()
        for partition in self.partitions.values():
            self._timed(partition, partition.tick)
        return self._finish()

    def _timed(
        self,
        partition: Partition | None,
        work: Callable[Arguments, None],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> None:
        if self.clock is None or partition is None:
            work(*arguments, **named)
            return
        began_ms, who = self.clock(), partition.entry.partition
        self.at_work = partition
        work(*arguments, **named)
        self.at_work = None
        self.busy_ms[who] = self.busy_ms.get(who, 0.0) + self.clock() - began_ms

    def _asker(self, reply: StoreReply) -> Partition | None:
        """The partition that this answer goes to."""
        owner = self.desk.asked_by(reply) if self.clock is not None else None
        for partition in self.partitions.values():
            if owner is partition:
                return partition
            if isinstance(partition, OperatorPartition) and (owner is partition.saver or owner is partition.loader):
                return partition
        return None

    def working_on(self) -> Work | None:
        """May be asked from beside the loop: it reads, and what it reads is replaced, never changed."""
        partition = self.at_work
        if partition is None:
            return None
        done = partition.inputs.taken if isinstance(partition, SinkPartition) else partition.epoch
        return partition.entry.partition, done

    def _finish(self) -> list[Effect]:
        desk = self.desk
        self._serve_early()
        while desk.local:
            self._route(desk.local.popleft())
            self._serve_early()
        since_ms = desk.now_ms - self.reported_ms
        if desk.changed or since_ms >= desk.settings.report_ms:
            desk.changed = False
            self.reported_ms = desk.now_ms
            self._report()
        effects, desk.effects = desk.effects, []
        return effects

    def _route(self, message: Message) -> None:
        if isinstance(message, Frame | Accepted | Refused):
            receiver = self.partitions.get(message.subscription.receiver)
            if receiver is not None and receiver.entry.generation == message.subscription.generation:
                self._timed(receiver, receiver.handle, message)
            else:
                self.desk.count("dropped_fenced")
        elif isinstance(message, Backup):
            self.holder.on_backup(message)
        elif isinstance(message, Fetch):
            self.holder.on_fetch(message)
        elif isinstance(message, Held | Holding):
            self._to_owner(message)
        elif not isinstance(message, Plan | Hello | Report | Busy | Leave):
            sender = self.partitions.get(message.sender)
            if isinstance(message, Subscribe) and not self._is_served(message, sender):
                self.early[message.subscription.receiver, message.edge + str(message.sender)] = message
            elif sender is not None:
                self._timed(sender, sender.handle, message)

    def _to_owner(self, message: Held | Holding) -> None:
        who = message.asker if isinstance(message, Held) else message.partition
        owner = self.partitions.get(who)
        if not isinstance(owner, OperatorPartition) or owner.entry.generation != message.generation:
            self.desk.count("dropped_fenced")
        elif isinstance(message, Held):
            owner.loader.on_held(message)
        else:
            owner.protection.on_holding(message)

    def _is_served(self, message: Subscribe, sender: Partition | None) -> bool:
        return message.journal_version <= self.desk.journal.version and (sender is None or sender.running)

    def _serve_early(self) -> None:
        """Those that came before their sender ran are not asked to come again: recovery waits for nobody's retry."""
        if self.early and any(self._is_served(m, self.partitions.get(m.sender)) for m in self.early.values()):
            waiting, self.early = self.early, {}
            for message in waiting.values():
                self._route(message)

    def _adopt(self, plan: Plan) -> None:
        journal, desk = plan.journal, self.desk
        if (journal.term, journal.version) < (desk.journal.term, desk.journal.version):
            desk.count("dropped_fenced")
            return
        desk.places = plan.places
        if journal.version == desk.journal.version:
            return
        desk.journal = journal
        desk.changed = True
        self.holder.adopt()
        mine = {p: e for p, e in journal.entries.items() if e.worker == self.worker}
        for known in list(self.partitions):
            entry = mine.get(known)
            if entry is None or entry.generation != self.partitions[known].entry.generation:
                self.partitions.pop(known).stop()
        for partition, entry in mine.items():
            running = self.partitions.get(partition)
            if running is None:
                self._start(entry)
            else:
                self._timed(running, running.adopt, entry)

    def _start(self, entry: Entry) -> None:
        kind = KINDS[self.graph.nodes[entry.partition.operator].kind]
        self.partitions[entry.partition] = kind(self.desk, entry, self.graph)

    def _report(self) -> None:
        desk = self.desk
        if not desk.journal.version:
            desk.send(CONTROLLER, Hello(self.worker, desk.place))
            return
        statuses = tuple(partition.status() for partition in self.partitions.values())
        if desk.lost:
            statuses = tuple(with_fields(status, failure=LOST) for status in statuses)
        desk.send(CONTROLLER, Report(self.worker, desk.journal.version, statuses, desk.wall_ms, place=desk.place))

    def statistics(self) -> dict[str, int]:
        return dict(self.desk.counts)
