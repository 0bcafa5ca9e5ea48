"""One partition of an operator.

    fencing -> loading -> running (taking epochs) -> sealed (serving its buffer) -> gone
       |          |
       +----------+--> failed (said in its Status; the flow stops with a report)

First the store refuses our predecessors, then we read what they left: so nothing can be written behind our back.
"""

from __future__ import annotations

from seep.errors import SeepError
from seep.model.care import Condemned
from seep.model.epoch import NOTHING, Moment, Progress
from seep.model.ids import BEGINNING, FOREVER, PartitionId
from seep.partition.code import Coded
from seep.partition.contract import Graph, Logic
from seep.partition.copies import Protection
from seep.partition.desk import Call, Desk, failure_of
from seep.partition.inputs import Inputs
from seep.partition.load import Load
from seep.partition.loader import Loader
from seep.partition.outputs import Outputs
from seep.partition.pin import Pin
from seep.partition.saver import Saver
from seep.partition.taking import Taking
from seep.partition.wary import Wary
from seep.protocol.effects import FenceStore, StoreReply
from seep.protocol.journal import SHADOW, Entry
from seep.protocol.messages import Accepted, Credit, DataMessage, Frame, Refused, Status, Subscribe, Trim, Unsubscribe
from seep.state.checkpoint import Checkpoint

BREATH_MS = 20.0
"""Of taking one epoch after the other."""


class OperatorPartition:
    def __init__(self, desk: Desk, entry: Entry, graph: Graph) -> None:
        self.desk = desk
        self.entry = entry
        self.graph = graph
        self.node = graph.nodes[entry.partition.operator]
        self.code = Coded(desk, entry.partition, self.node)
        self.epoch = self.base_epoch = entry.base_epoch
        self.moment = Moment(entry.base_epoch, 0, BEGINNING, BEGINNING)
        self.ended = self.idle = self.winded = self.running = False
        self.failure = ""
        self.credited = -1
        self.counts = {"rows_in": 0, "rows_out": 0}
        self.load = Load()
        self.wary = Wary(desk, entry)
        self.paused_ms = 0.0
        """For checkpoints: what it takes to copy what goes into them."""
        self.taking = Taking()
        """Inside the operator, with rows."""
        self.inputs = Inputs(desk, entry, graph.inputs(self.node.name))
        self.broadcast = frozenset(edge.port for edge in self.inputs.edges if edge.broadcast)
        self.outputs = Outputs(desk, entry, graph.outputs(self.node.name), NOTHING)
        self.saver = Saver(desk, entry, self._durable)
        self.pin = Pin(desk, entry.partition, self.saver)
        self.loader = Loader(desk, entry, graph)
        self.protection = Protection(desk, graph, entry)
        self.bases: dict[PartitionId, list[Checkpoint]] = {}
        self._fence(desk.call)

    @property
    def logic(self) -> Logic:
        return self.code.logic

    # --- start ---------------------------------------------------------------------------------------------------

    def _fence(self, call: Call) -> None:
        entry, version = self.entry, self.desk.journal.version
        call(self, lambda token: FenceStore(token, entry.partition, entry.generation, version), self._fenced)

    def _fenced(self, reply: StoreReply) -> None:
        if reply.error == "fenced":
            self.saver.fenced = self.desk.changed = True
        elif reply.error:
            self._fence(self.desk.call_again)
        else:
            self._load(self.desk.call)

    def _load(self, call: Call) -> None:
        self.loader.newest(self._loaded, call)

    def _loaded(self, reply: StoreReply) -> None:
        if reply.error and reply.error != "damaged":
            self._load(self.desk.call_again)
            return
        chain: list[Checkpoint] = reply.value if reply.value and not reply.error else []
        if chain:
            if not self.loader.from_memory:
                self.saver.restored(chain)
            self._restore([chain])
        elif self.entry.base:
            for partition, version in self.entry.base:
                self._load_base(partition, version, self.desk.call)
        elif reply.error or reply.value:
            self._fail(f"{self.entry.partition}: none of its checkpoints can be used; restore from a savepoint")
        else:
            self._restore([])

    def _load_base(self, partition: PartitionId, version: int, call: Call) -> None:
        def loaded(reply: StoreReply) -> None:
            chain = [] if reply.error else reply.value
            if reply.error == "damaged" or (not reply.error and not self._usable(chain)):
                self._fail(f"{self.entry.partition}: its base, checkpoint {version} of {partition}, is gone")
            elif reply.error:
                self._load_base(partition, version, self.desk.call_again)
            else:
                self.bases[partition] = chain
                if len(self.bases) == len(self.entry.base):
                    self._restore([self.bases[p] for p, _ in self.entry.base])

        self.loader.base(partition, version, loaded, call)

    def _usable(self, chain: list[Checkpoint]) -> bool:
        """An older one than asked for only means a longer replay, unless several must be of one epoch. A shadow had
        better fail: its Replace begins anew from a newer one, and what it would replay may be trimmed already."""
        if not chain or chain[-1].epoch == self.entry.base_epoch:
            return bool(chain)
        return len(self.entry.base) == 1 and self.entry.role != SHADOW

    def _restore(self, chains: list[list[Checkpoint]]) -> None:
        try:
            self.code.begin(chains[0][-1].epoch if chains else self.epoch)
        except SeepError as error:
            self._fail(failure_of(self.entry.partition, error))
            return
        for chain in chains:
            for checkpoint in chain:
                if checkpoint.state is not None:
                    self.logic.load(checkpoint.state)
            newest = chain[-1]
            self.saver.began(age_ms=self.desk.wall_ms - newest.now_ms)
            self.epoch = newest.epoch
            self.moment = Moment(newest.epoch, newest.now_ms, newest.watermark, newest.watermark)
            self.ended, self.idle = newest.ended, newest.idle
            if newest.ended:
                self.moment = self.moment._replace(watermark=FOREVER, reached=newest.watermark)
            if newest.partition == self.entry.partition:
                self.counts.update(newest.counts)
        said = self.moment.announced(self.ended)
        base = Progress(self.epoch, self.moment.now_ms, said, ended=self.ended, idle=self.idle)
        self.outputs = Outputs(self.desk, self.entry, self.graph.outputs(self.node.name), base)
        if chains and chains[0][0].partition == self.entry.partition:
            self.outputs.restore(chains[0])
        # Of a damaged base an older version was taken, now or in an earlier generation, whose checkpoint this may be:
        # restored again, we would need what comes after that.
        self.base_epoch = min(self.base_epoch, self.epoch)
        self.bases.clear()
        self.inputs.taken = self.inputs.highest = self.epoch
        self.running = True
        self.desk.changed = True
        self.adopt(self.entry)

    def _fail(self, report: str) -> None:
        self.failure = report
        self.desk.changed = True

    # --- what the journal says -----------------------------------------------------------------------------------

    def adopt(self, entry: Entry) -> None:
        self.entry = self.saver.me = self.protection.me = entry
        if not self.running:
            return
        self.outputs.adopt()
        self._seal()
        self.inputs.adopt(entry.last)
        self._pin()
        self.protection.adopt()
        self.advance()

    def _seal(self) -> None:
        if self.epoch >= self.entry.last:
            self.outputs.seal(self.entry.last)

    def _pin(self) -> None:
        if self.pin.look():
            self.checkpoint()

    # --- taking --------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Take every epoch that is complete, as far as our life, a merge's checkpoint, an upgrade and credit allow;
        after a while let the worker breathe, for whom messages wait."""
        inputs, last = self.inputs, min(self.entry.last, self.code.last_epoch(self.epoch))
        began_ms = self.desk.clock()
        while self._may_take() and self.epoch < last and not self.winded:
            bound, upcoming = inputs.bound(), inputs.next_epoch()
            stop = min(last, self.pin.epoch_after(self.epoch))
            if upcoming > stop and bound >= stop > self.epoch and stop < FOREVER:
                self._move(stop)
                continue
            if upcoming == FOREVER or upcoming > bound or upcoming > last or self.outputs.blocked or self.outputs.full:
                break
            self._take(upcoming)
            if self.desk.clock() - began_ms > BREATH_MS:
                self.winded = self.desk.more = True
        if self.epoch > self.credited:
            self.credited = self.epoch
            inputs.watermark = min(self.moment.watermark, self.outputs.watermark)
            inputs.give_credit()
        self._try_code()

    def _may_take(self) -> bool:
        return self.running and not (self.failure or self.inputs.failure or self.saver.fenced)

    def _try_code(self) -> None:
        """An upgrade begins after this epoch: keep a checkpoint of it, and try the new code on what is remembered."""
        replace = self.code.pending
        if replace is None:
            self.code.forget()
        elif replace.at == self.epoch and self._may_take():
            if not self.saver.wrote(self.epoch) and not self.saver.underway(self.epoch):
                self.checkpoint()
            # All of it is looked at: only after that checkpoint, which holds what had changed.
            self.desk.changed |= self.code.tries(replace, self.moment.now_ms)

    def _reach(self, epoch: int) -> bool:
        """Is the code of this epoch the one that runs?"""
        try:
            if self.code.reach(epoch, self.moment.now_ms):
                self.saver.full_next = True
        except SeepError as error:
            self.running = False
            self._fail(failure_of(self.entry.partition, error))
        return self.running

    def _take(self, epoch: int) -> None:
        if not self._reach(epoch):
            return
        batches, now_ms, watermark, ended, idle, reached = self.inputs.take(epoch)
        at_ms, before = max(self.moment.now_ms, now_ms), self.moment.watermark
        moment = Moment(epoch, at_ms, before, max(before, watermark), max(before, reached))
        # What every partition gets says nothing about where to split.
        self.load.add(epoch - self.epoch, (batch for port, batch in batches if port not in self.broadcast))
        rows = sum(batch.weight for _, batch in batches)
        self.counts["rows_in"] += rows
        self.desk.hand_over()
        self.logic.care = self.wary.care(epoch, self.epoch)
        from_ms = self.desk.clock()
        try:
            outputs = self.logic.take(moment, batches)
            if batches:
                self.taking.add(rows, (self.desk.clock() - from_ms) / 1000)
        except (SeepError, Condemned) as error:
            self.running = False  # what the operator holds may be half changed: it takes, serves and saves no more
            who = self.entry.partition
            self._fail(failure_of(who, error) if isinstance(error, SeepError) else self.wary.accuse(epoch, error))
            return
        self.moment, self.ended, self.idle = moment, ended, idle
        self.counts["rows_out"] += sum(batch.weight for batch in outputs.values())
        self.outputs.count(outputs)
        self.outputs.add(Progress(epoch, moment.now_ms, moment.announced(ended), ended=ended, idle=idle), outputs)
        self._move(epoch)

    def _move(self, epoch: int) -> None:
        if not self._reach(epoch):
            return
        fixed = self.pin.epoch_after(self.epoch)
        self.epoch = epoch
        self.inputs.move(epoch)
        if epoch == fixed:
            self.checkpoint()
        if epoch >= self.entry.last:
            self._seal()
            self.desk.changed = True

    # --- saving --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        again_bytes = sum(buffer.saved_bytes for buffer in self.outputs.buffers.values())
        full = self.saver.next_is_full() or (self.saver.prefers_full(again_bytes) and self.logic.mostly_changed())

        def make(version: int, parent: int) -> Checkpoint:
            buffers = self.outputs.buffers
            return Checkpoint(
                self.entry.partition,
                self.entry.generation,
                self.entry.key_range,
                version,
                parent,
                self.epoch,
                self.moment.now_ms,
                self.moment.announced(self.ended),
                self.ended,
                self.logic.snapshot(full),
                {name: buffer.unsaved(full) for name, buffer in buffers.items()},
                {name: buffer.trimmed for name, buffer in buffers.items()},
                dict(self.counts),
                self.idle,
                self.saver.durable[-1] if self.saver.durable else None,
            )

        began_ms = self.desk.clock()
        self.saver.add(make, full)
        self.paused_ms += self.desk.clock() - began_ms

    def _durable(self, checkpoint: Checkpoint) -> None:
        self.desk.changed = True
        self.protection.durable(checkpoint, self.logic.statistics().get("state_bytes", 0))
        self._pin()
        self.trim()
        entries = self.desk.journal.entries.values()
        keep = {version for e in entries for who, version in e.base if who == self.entry.partition}
        if self.pin.kept is not None:
            keep.add(self.pin.kept.version)
        self.saver.drop_old(keep)

    def trim(self) -> None:
        if not self.saver.durable:
            return
        upto = self.saver.fallback_epoch(self.base_epoch)
        if self.pin.kept is not None:
            upto = min(upto, self.pin.kept.epoch)
        self.inputs.trim(upto)

    def tick(self) -> None:
        self.loader.tick()
        if not self.running or self.saver.fenced or self.failure:
            return
        due = self.saver.due(behind_ms=self.desk.wall_ms - self.moment.now_ms)
        first = not self.saver.durable and self.entry.role == SHADOW
        if (due or first) and not self.saver.busy:
            if self.saver.lacks(self.epoch):
                self.checkpoint()
            elif due:
                self.saver.last_ms = self.desk.now_ms
                self.trim()
        self.protection.tick()
        self.inputs.retry()
        self.winded = False
        self.advance()

    # --- messages ------------------------------------------------------------------------------------------------

    def handle(self, message: DataMessage) -> None:
        if not self.running:
            return
        match message:
            case Frame():
                if self.inputs.on_frame(message):
                    self.advance()
            case Credit():
                self.outputs.on_credit(message)
                if self.outputs.highest > self.inputs.highest:
                    self.inputs.highest = self.outputs.highest
                    self.inputs.give_credit()
                self.advance()
            case Subscribe():
                self.outputs.on_subscribe(message)
            case Trim():
                self.desk.changed |= self.outputs.on_trim(message) and self.epoch >= self.entry.last
                self.advance()
            case Unsubscribe():
                self.outputs.on_unsubscribe(message)
            case Accepted():
                self.inputs.on_accepted(message)
            case Refused():
                self.inputs.on_refused(message)

    def status(self) -> Status:
        fixed = self.pin.told()
        durable = self.saver.durable[-1] if self.saver.durable else (0, -1)
        return Status(
            self.entry.partition,
            self.entry.generation,
            self.desk.journal.version,
            self.epoch if self.running else -1,
            durable_epoch=durable[1],
            durable_version=durable[0],
            own_checkpoints=len(self.saver.durable),
            fixed_version=fixed[0],
            fixed_epoch=fixed[1],
            accepted=self.running and self.inputs.accepted,
            begun=self.code.begun(self.epoch, self.saver.wrote(self.epoch)) if self.running else -1,
            drained=self.running and self.epoch >= self.entry.last and self.outputs.empty,
            ended=self.running and self.ended,
            fenced=self.saver.fenced,
            failure=self.failure or self.inputs.failure,
            statistics=self.counts
            | dict(self.logic.statistics())
            | {"buffer_bytes": self.outputs.size_bytes, **self.protection.statistics()},
            load=self.load.by_group(),
            watermark=self.moment.watermark,
            idle=self.idle,
            accused=self.wary.accused,
            heard=self.inputs.heard if self.running else -1,
            refusal=self.code.refusal,
        )

    def stop(self) -> None:
        self.running = False
        for waiting in (self, self.saver, self.loader):
            self.desk.forget(waiting)
