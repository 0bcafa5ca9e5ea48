"""One partition of a sink. The fenced append of an epoch to the sink's log is its commit; its τ is what is committed.

What an epoch looks like outside (a file, a screen) is published after the commit and again after a restart, so
outlets publish idempotently; those that may publish at most once leave out what an earlier start has committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from seep.model.batch import DIGESTS, Batch
from seep.model.care import Care
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING, FOREVER
from seep.partition.contract import Graph, Outlet
from seep.partition.desk import Call, Desk
from seep.partition.histogram import Histogram
from seep.partition.inputs import Inputs
from seep.partition.wary import Wary
from seep.protocol.effects import Append, FenceStore, Publish, Published, ReadLog, StoreReply, Truncate
from seep.protocol.journal import SEALED, Entry
from seep.protocol.messages import Accepted, DataMessage, Frame, Refused, Status

COMMIT_BYTES = 8 << 20
"""In one append, about."""
Sum = tuple[int, int]
"""What is committed by then: rows, and the sum of their digests."""
UNPUBLISHED_BYTES, UNPUBLISHED_EPOCHS = 64 << 20, 4_000
"""Committed and not yet visible: with more, nothing is taken until the outside has caught up."""


class Commit(NamedTuple):
    epoch: int
    sum: Sum
    record: bytes | None
    ended: bool
    now_ms: int = 0
    """When its rows were cut, at the latest."""


class SinkPartition:
    def __init__(self, desk: Desk, entry: Entry, graph: Graph) -> None:
        self.desk = desk
        self.entry = entry
        self.node = graph.nodes[entry.partition.operator]
        self.outlet: Outlet = self.node.make()
        self.wary = Wary(desk, entry)
        self.outlet.care = self._care
        self.inputs = Inputs(desk, entry, graph.inputs(self.node.name))
        self.moment = Moment(0, 0, BEGINNING, BEGINNING)
        self.committed = entry.base_epoch
        """The newest epoch in the log."""
        self.appending: list[Commit] | None = None
        self.ended = False
        self.running = False
        self.fenced = False
        self.failure = ""
        self.marked_ms = desk.now_ms
        self.credited = -1
        self.sum: Sum = (0, 0)
        """Committed by this partition since it began: logged with each record, for the audit."""
        self.latency = Histogram()
        """From the cut at the source to the commit here, of epochs with rows."""
        self.forgettable, self.truncated_ms = 0, desk.now_ms
        """What was published when the log was last truncated: the next time it may be forgotten."""
        self.forgotten = 0
        """The log holds nothing below this epoch."""
        self.unpublished: deque[tuple[int, int]] = deque()
        """Epoch and bytes of each publish not answered yet: neither the end nor the seal is final before they are."""
        self.unpublished_bytes = 0
        self.shown = -1
        """So far nothing is held back outside, of what was published: some sinks make one file of many epochs."""
        self.held: list[Publish] = []
        """Of these, what waits for those who had our keys before us."""
        self.closed = False
        self._fence(desk.call)

    # --- start ---------------------------------------------------------------------------------------------------

    def _fence(self, call: Call) -> None:
        entry, version = self.entry, self.desk.journal.version
        call(self, lambda token: FenceStore(token, entry.partition, entry.generation, version), self._after_fence)

    def _after_fence(self, reply: StoreReply) -> None:
        if reply.error == "fenced":
            self.fenced = self.desk.changed = True
        elif reply.error:
            self._fence(self.desk.call_again)
        else:
            self._read_log(self.desk.call)

    def _read_log(self, call: Call) -> None:
        partition = self.entry.partition
        call(self, lambda token: ReadLog(token, partition), self._log_read)

    def _log_read(self, reply: StoreReply) -> None:
        if reply.error == "damaged":
            self.failure = f"{self.entry.partition}: its committed log is damaged"
            self.desk.changed = True
            return
        if reply.error:
            self._read_log(self.desk.call_again)
            return
        self.forgotten = reply.value[0][0] if reply.value else 0
        self._begin_outlet(reply.value)
        for epoch, ((rows, digest), record) in reply.value:
            self.committed, self.sum = epoch, (rows, digest)
            if self.outlet.repeats:
                self._publish(epoch, record, ended=False)
        self.inputs.taken = self.inputs.highest = self.committed
        self.running = True
        self.desk.changed = True
        self.adopt(self.entry)

    def _begin_outlet(self, log: Sequence[tuple[int, Any]]) -> None:
        """With the first record of our own: a savepoint that was restored has left one from before."""
        own = (kept for epoch, kept in log if epoch >= self.entry.first)
        (rows, _), record = next(own, ((0, 0), None))
        self.outlet.begin(self.entry.partition, rows, record)

    # --- taking --------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Commit what is complete, one append at a time: what comes meanwhile goes into the next one together."""
        inputs = self.inputs
        if self.appending is None and self._may_take():
            commits = self._take()
            if commits:
                self._append(commits)
        if not self.ended and self.running and inputs.ended:
            # Started again after its last epoch: nothing is left to take, but the end was announced, and what the
            # outlet holds back until then must become visible.
            self.ended = self.desk.changed = True
            self._publish(self.committed, None, ended=True)
        if inputs.taken > self.credited:
            self.credited = inputs.taken
            inputs.watermark = self.moment.watermark
            inputs.give_credit()

    def _take(self) -> list[Commit]:
        """Every epoch that is complete, up to some size; those without rows are only marked now and then."""
        inputs, size = self.inputs, 0
        commits: list[Commit] = []
        while size < COMMIT_BYTES:
            stop = self._stop()
            if inputs.taken >= stop:
                if (commits[-1].epoch if commits else self.committed) < stop:
                    commits.append(Commit(stop, self.sum, None, self.ended))
                break
            bound, upcoming = inputs.bound(), inputs.next_epoch()
            if upcoming > stop and bound >= stop and stop < FOREVER:
                inputs.move(stop)
                commits.append(Commit(stop, self.sum, None, self.ended))
                break
            if upcoming == FOREVER or upcoming > bound or upcoming > stop:
                break
            batches, now_ms, watermark, ended, *_ = inputs.take(upcoming)
            before = self.moment
            self.moment = Moment(
                upcoming, max(before.now_ms, now_ms), before.watermark, max(before.watermark, watermark)
            )
            self.ended = ended
            record = self.outlet.encode(self.moment, batches)
            self.sum = _counted(self.sum, batches)
            due = self._mark_is_due() and not commits
            if record is not None or ended or due:
                commits.append(Commit(upcoming, self.sum, record, ended, now_ms))
                size += len(record or b"")
        return commits

    def _mark_is_due(self) -> bool:
        """Epochs without rows are marked now and then: often while somebody waits until all up to one of them is shown,
        which a sink that makes one file of many epochs can say only of those that it hears of."""
        settings = self.desk.settings
        often = self.shown < self.desk.journal.fixed
        return self.desk.now_ms - self.marked_ms >= (settings.retry_ms if often else settings.checkpoint_ms)

    def _may_take(self) -> bool:
        return self.running and not (self.failure or self.inputs.failure or self.fenced or self._is_behind())

    def _is_behind(self) -> bool:
        return len(self.unpublished) >= UNPUBLISHED_EPOCHS or self.unpublished_bytes >= UNPUBLISHED_BYTES

    def _stop(self) -> int:
        """The last epoch to commit: of our life, or of a hand-over (none while its epoch is being agreed on)."""
        replace = self.desk.journal.replacing(self.entry.partition)
        if replace is None:
            return self.entry.last
        return min(self.entry.last, replace.at) if replace.at else self.inputs.taken

    def _append(self, commits: list[Commit]) -> None:
        self.appending = commits
        self._write(self.desk.call)

    def _write(self, call: Call) -> None:
        assert self.appending is not None
        partition, generation = self.entry.partition, self.entry.generation
        *before, last = [(commit.epoch, (commit.sum, commit.record)) for commit in self.appending]
        call(self, lambda token: Append(token, partition, generation, *last, tuple(before)), self._appended)

    def _appended(self, reply: StoreReply) -> None:
        assert self.appending is not None
        if reply.error == "fenced":
            self.fenced = self.desk.changed = True
            self.desk.count("refused_fenced")
        elif reply.error and reply.error != "exists":
            self._write(self.desk.call_again)
        else:
            commits, self.appending = self.appending, None
            for commit in commits:
                self.committed = commit.epoch
                if commit.record is not None:
                    self.latency.add(max(0, self.desk.wall_ms - commit.now_ms))
                self._publish(commit.epoch, commit.record, commit.ended)
            self.marked_ms = self.desk.now_ms
            self.inputs.trim(self.committed)
            self.desk.changed = self.desk.changed or commits[-1].ended or self.committed >= self._stop()
            self.advance()

    def _publish(self, epoch: int, record: bytes | None, ended: bool) -> None:
        self.unpublished.append((epoch, len(record or b"")))
        self.unpublished_bytes += self.unpublished[-1][1]
        self.held.append(Publish(self.entry.partition, epoch, record, ended))
        self._let_out()

    def _let_out(self) -> None:
        """A key's rows become visible in their order: not before those of the partitions that had it earlier. They
        leave the journal when all of theirs is published."""
        if self.held and not self._is_preceded():
            self.desk.effects += self.held
            self.held = []

    def _is_preceded(self) -> bool:
        """By numbers, not by epochs: of two that were sealed before they took any, each would come after the other."""
        mine = self.entry
        older = (e for e in self.desk.journal.of(mine.partition.operator) if e.partition < mine.partition)
        return any(e.role == SEALED and e.key_range.overlaps(mine.key_range) for e in older)

    def _close(self) -> None:
        """Our life is over: what the outlet still holds back must become visible."""
        if self.committed >= self.entry.last and not self.closed:
            self.closed = True
            self._publish(self.committed, None, ended=True)

    def published(self, answer: Published) -> None:
        if answer.failure:
            # Not shown, and perhaps never: neither the end nor the seal is final, and the log keeps all of it.
            self.failure, self.desk.changed = self.failure or answer.failure, True
        if self.failure:
            return
        was_behind, upto = self._is_behind(), answer.upto
        self.shown = upto if upto >= 0 else FOREVER
        for _ in range(answer.count):
            self.unpublished_bytes -= self.unpublished.popleft()[1]
        final = not self.unpublished and (self.ended or self.closed)
        self.desk.changed = self.desk.changed or final
        if was_behind:
            self.advance()
        if self.desk.now_ms - self.truncated_ms >= self.desk.settings.retry_ms and self.desk.journal.fixed < 0:
            # While an audit or a savepoint looks at what was committed up to an epoch, some of the past stays.
            below, self.forgettable, self.truncated_ms = self.forgettable, max(upto, 0), self.desk.now_ms
            if below:
                self.forgotten = below
                self.desk.effects.append(Truncate(self.entry.partition, self.entry.generation, below))

    def _care(self, epoch: int) -> Care:
        """Called where it is published, on another thread. A note for each epoch is cheap: all of them get one."""
        return self.wary.care(epoch, -1)

    # --- journal, messages ---------------------------------------------------------------------------------------

    def adopt(self, entry: Entry) -> None:
        self.entry = entry
        if self.running:
            self.inputs.adopt(entry.last)
            self._close()
            self._let_out()
            self.advance()

    def tick(self) -> None:
        if not self.running or self.fenced or self.failure:
            return
        idle = self.inputs.taken > self.committed and self.appending is None
        if idle and self._mark_is_due():
            self._append([Commit(self.inputs.taken, self.sum, None, self.ended)])
        elif self._mark_is_due():
            self.marked_ms = self.desk.now_ms
            self.inputs.trim(self.committed)
        self.inputs.retry()

    def handle(self, message: DataMessage) -> None:
        if not self.running:
            return
        match message:
            case Frame():
                if self.inputs.on_frame(message):
                    self.advance()
            case Accepted():
                self.inputs.on_accepted(message)
            case Refused():
                self.inputs.on_refused(message)

    def status(self) -> Status:
        replace = self.desk.journal.replacing(self.entry.partition)
        resting = self.running and replace is not None and self.appending is None
        refused = getattr(self.outlet, "refused", 0)
        published = self.unpublished[0][0] - 1 if self.unpublished else FOREVER
        return Status(
            self.entry.partition,
            self.entry.generation,
            self.desk.journal.version,
            self.committed if self.running else -1,
            durable_epoch=self.committed,
            own_checkpoints=2 if self.committed > self.entry.base_epoch else 0,
            fixed_epoch=self.desk.journal.fixed if self.running and self.forgotten <= self.desk.journal.fixed else -1,
            accepted=self.running and self.inputs.accepted,
            begun=(self.committed if replace and replace.at else self.inputs.taken) if resting else -1,
            drained=self.running and self.closed and not self.unpublished,
            ended=self.running and self.ended and self.appending is None and not self.unpublished,
            fenced=self.fenced,
            failure=self.failure or self.inputs.failure,
            statistics={"rows_in": self.sum[0], **({"errors": refused} if refused else {})},
            watermark=self.moment.watermark,
            heard=self.inputs.heard if self.running else -1,
            published=published,
            shown=min(published, self.shown),
        )

    def stop(self) -> None:
        self.running = False
        self.desk.forget(self)


def _counted(before: Sum, batches: Sequence[tuple[int, Batch]]) -> Sum:
    rows, digest = before
    return rows + sum(batch.rows for _, batch in batches), (digest + sum(b.digest() for _, b in batches)) % DIGESTS
