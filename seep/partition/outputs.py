"""The sending side of a partition: one buffer for each edge, and a cursor into it for each subscription.

Sending is moving a cursor: what credit does not allow yet simply stays in the buffer, where it is kept for replay
anyway. Whom the buffer waits for before it is trimmed comes from the journal, never from who happens to listen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.model.ids import FOREVER, KeyRange, PartitionId
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.protocol.journal import LIVE, Entry
from seep.protocol.messages import Accepted, Credit, Frame, Refused, Subscribe, SubscriptionId, Trim, Unsubscribe
from seep.state.buffer import Buffer
from seep.state.checkpoint import Buffered, Checkpoint

FRAME_BYTES = 64 << 20
"""In one frame, unless a single row has more; a process takes no message of more than sixteen times as many."""


class Cursor:
    """One subscription, as its sender sees it."""

    __slots__ = (
        "after",
        "key_range",
        "open_bytes",
        "opened",
        "position",
        "rows",
        "sequence",
        "subscription",
        "watermark",
        "worker",
    )

    def __init__(self, message: Subscribe, position: int) -> None:
        self.subscription: SubscriptionId = message.subscription
        self.worker = message.worker
        self.key_range: KeyRange = message.key_range
        self.after = message.after
        self.watermark = FOREVER
        self.rows = 0
        self.position = position
        self.sequence = 0
        self.opened: deque[tuple[int, int]] = deque()
        """(epoch, bytes) sent and not yet taken."""
        self.open_bytes = 0

    def settle(self, taken: int) -> None:
        while self.opened and self.opened[0][0] <= taken:
            self.open_bytes -= self.opened.popleft()[1]


class Outputs:
    def __init__(self, desk: Desk, me: Entry, edges: Iterable[Edge], base: Progress) -> None:
        self.desk = desk
        self.me = me
        self.edges = {edge.name: edge for edge in edges}
        self.buffers = {name: Buffer(base) for name in self.edges}
        self.cursors: dict[str, dict[PartitionId, Cursor]] = {name: {} for name in self.edges}
        self.trims: dict[str, dict[PartitionId, int]] = {name: {} for name in self.edges}
        self.sent = dict.fromkeys(self.edges, 0)
        """Rows put on each edge since it began here."""
        self.highest = 0
        """The highest epoch number any receiver has heard of."""

    def restore(self, chain: Sequence[Checkpoint]) -> None:
        """What was in the buffers when it was saved."""
        for name, buffer in self.buffers.items():
            buffer.trimmed = chain[0].trimmed[name]
            for checkpoint in chain:
                buffer.restore(checkpoint.buffers.get(name, ()))
            newest = chain[-1].trimmed[name]
            buffer.trim(newest.epoch)
            if newest.epoch > buffer.trimmed.epoch:
                buffer.trimmed = newest

    # --- what goes out -------------------------------------------------------------------------------------------

    def add(self, progress: Progress, batches: Mapping[str, Batch]) -> None:
        """Buffer one epoch's output on every edge, and send what credit allows."""
        for name, buffer in self.buffers.items():
            batch = batches.get(name)
            if batch is None or not batch.rows:
                buffer.add(Buffered(progress, ()))
            else:
                digest = batch.digest()
                buffer.add(Buffered(_with_digest(progress, digest), (batch,)))
            self.pump(name)
            if self.desk.spill is not None and buffer.memory_bytes > self.desk.settings.spill_bytes:
                buffer.spill(self.desk.settings.spill_bytes, self.desk.spill)

    def count(self, batches: Mapping[str, Batch]) -> None:
        """These are new (what is replayed was counted when it was)."""
        for name, batch in batches.items():
            self.sent[name] += batch.weight

    def pump(self, edge: str) -> None:
        for cursor in self.cursors[edge].values():
            self._pump(edge, cursor)

    def _pump(self, edge: str, cursor: Cursor) -> None:
        buffer, settings = self.buffers[edge], self.desk.settings
        if cursor.position < buffer.first:
            cursor.position = buffer.first
        end = buffer.end
        while cursor.position < end:
            full = cursor.open_bytes >= settings.credit_bytes or len(cursor.opened) >= settings.credit_epochs
            if full and cursor.opened:
                return
            entry = buffer.at(cursor.position)
            cursor.position += 1
            self._send(cursor, entry)

    def _send(self, cursor: Cursor, entry: Buffered) -> None:
        progress, sent_bytes = entry.progress, 0
        last: Batch | None = None
        if progress.epoch > cursor.after:
            for batch in entry.batches:
                part = batch.part(cursor.key_range)
                if not part.rows:
                    continue
                sent_bytes += part.size_bytes
                for piece in _pieces(part, self.desk.settings.frame_rows):
                    if last is not None:
                        self._frame(cursor, progress.epoch, last, None)
                    last = piece
            cursor.opened.append((progress.epoch, sent_bytes))
            cursor.open_bytes += sent_bytes
        self._frame(cursor, progress.epoch, last, progress)

    def _frame(self, cursor: Cursor, epoch: int, batch: Batch | None, progress: Progress | None) -> None:
        frame = Frame(cursor.subscription, self.me.partition, cursor.sequence, epoch, batch, progress)
        cursor.sequence += 1
        self.desk.send(cursor.worker, frame)

    # --- what receivers say --------------------------------------------------------------------------------------

    def on_subscribe(self, message: Subscribe) -> None:
        journal, receiver = self.desk.journal, message.subscription.receiver
        entry = journal.entries.get(receiver)
        refusal = ""
        if message.journal_version > journal.version or entry is None:
            refusal = "behind"
        elif entry.generation != message.subscription.generation or message.sender_generation != self.me.generation:
            self.desk.count("dropped_fenced")
            return
        elif message.after < self.buffers[message.edge].trimmed.epoch:
            refusal = "trimmed"
        if refusal:
            self.desk.send(message.worker, Refused(message.subscription, self.me.partition, refusal))
            return
        buffer = self.buffers[message.edge]
        cursor = Cursor(message, max(buffer.first, buffer.after(message.after) - 1))
        known = self.cursors[message.edge].get(receiver)
        if known is not None and _order(known.subscription) > _order(cursor.subscription):
            return
        self.cursors[message.edge][receiver] = cursor
        self.desk.send(message.worker, Accepted(message.subscription, self.me.partition))
        if cursor.position == buffer.first:
            self._frame(cursor, buffer.trimmed.epoch, None, buffer.trimmed)
        self._pump(message.edge, cursor)

    def on_credit(self, message: Credit) -> None:
        self.highest = max(self.highest, message.highest)
        cursor = self.cursors[message.edge].get(message.subscription.receiver)
        if cursor is not None and cursor.subscription == message.subscription:
            cursor.watermark = message.watermark
            cursor.rows = message.rows
            cursor.settle(message.taken)
            self._pump(message.edge, cursor)

    def on_unsubscribe(self, message: Unsubscribe) -> None:
        cursors = self.cursors[message.edge]
        known = cursors.get(message.subscription.receiver)
        if known is not None and known.subscription == message.subscription:
            del cursors[message.subscription.receiver]

    def on_trim(self, message: Trim) -> bool:
        """Note it; forget what no receiver of the journal can ask for any more. Was anything forgotten?"""
        journal = self.desk.journal
        entry = journal.entries.get(message.receiver)
        if message.journal_version > journal.version or entry is None or entry.generation != message.generation:
            return False
        trims = self.trims[message.edge]
        if message.upto > trims.get(message.receiver, -1):
            trims[message.receiver] = message.upto
        return self.forget(message.edge)

    def forget(self, edge: str) -> bool:
        receivers = self.desk.journal.of(self.edges[edge].target)
        trims = self.trims[edge]
        return self.buffers[edge].trim(min((trims.get(e.partition, -1) for e in receivers), default=-1))

    # --- life ----------------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        entries = self.desk.journal.entries
        for name, cursors in self.cursors.items():
            for receiver in [r for r, c in cursors.items() if _gone(entries.get(r), c)]:
                del cursors[receiver]
            trims = self.trims[name]
            for receiver in [r for r in trims if r not in entries]:
                del trims[receiver]
            self.forget(name)

    def seal(self, last: int) -> None:
        """The life ended at `last`: forget what is later, and announce `last` even if nothing happened in it.

        A receiver that was already sent something later needs no announcement of `last`: it has heard more.
        """
        for name, buffer in self.buffers.items():
            buffer.cut_from(last + 1)
            newest = buffer.newest
            if newest.epoch < last and not newest.ended:
                buffer.add(Buffered(Progress(last, newest.now_ms, newest.watermark, idle=newest.idle), ()))
            for cursor in self.cursors[name].values():
                cursor.position = min(cursor.position, buffer.end)
            self.pump(name)

    @property
    def blocked(self) -> bool:
        """Is a live receiver so far behind its credit that taking more would only grow the buffer?"""
        entries, limit = self.desk.journal.entries, self.desk.settings.credit_epochs
        for name, cursors in self.cursors.items():
            end = self.buffers[name].end
            for receiver, cursor in cursors.items():
                if end - cursor.position >= limit and entries[receiver].role == LIVE:
                    return True
        return False

    @property
    def full(self) -> bool:
        """Is as much kept for replay as may be? Then nothing is taken until receivers have saved what they took."""
        return self.size_bytes >= self.desk.settings.buffer_bytes

    @property
    def watermark(self) -> int:
        """The lowest that any receiver, or one behind it, has said (FOREVER: none has)."""
        said = (cursor.watermark for cursors in self.cursors.values() for cursor in cursors.values())
        return min(said, default=FOREVER)

    @property
    def rows(self) -> int:
        """Those that receivers have taken, from all their senders."""
        return sum(cursor.rows for cursors in self.cursors.values() for cursor in cursors.values())

    @property
    def waiting(self) -> int:
        """Epochs that the slowest live receiver has not taken yet."""
        entries, most = self.desk.journal.entries, 0
        for name, cursors in self.cursors.items():
            end = self.buffers[name].end
            for receiver, cursor in cursors.items():
                if entries[receiver].role == LIVE:
                    most = max(most, len(cursor.opened) + end - cursor.position)
        return most

    @property
    def credit(self) -> tuple[int, int]:
        """(epochs, bytes) that may still be sent to the live receiver with the least left, until it takes some."""
        entries, settings = self.desk.journal.entries, self.desk.settings
        epochs, size_bytes = settings.credit_epochs, settings.credit_bytes
        for cursors in self.cursors.values():
            for receiver, cursor in cursors.items():
                if entries[receiver].role == LIVE:
                    epochs = min(epochs, settings.credit_epochs - len(cursor.opened))
                    size_bytes = min(size_bytes, settings.credit_bytes - cursor.open_bytes)
        return max(0, epochs), max(0, size_bytes)

    @property
    def size_bytes(self) -> int:
        return sum(buffer.size_bytes for buffer in self.buffers.values())

    @property
    def empty(self) -> bool:
        return all(not buffer.entries for buffer in self.buffers.values())


def _order(subscription: SubscriptionId) -> tuple[int, int, int]:
    return (*subscription.generation, subscription.number)


def _gone(entry: Entry | None, cursor: Cursor) -> bool:
    return entry is None or entry.generation != cursor.subscription.generation


def _pieces(batch: Batch, limit_rows: int) -> Iterator[Batch]:
    """The same rows for one frame each: not too many, and not too wide."""
    for piece in batch.pieces(limit_rows):
        if piece.rows > 1 and piece.size_bytes > FRAME_BYTES:
            yield from _pieces(piece, (piece.rows + 1) // 2)
        else:
            yield piece


def _with_digest(progress: Progress, digest: int) -> Progress:
    return Progress(progress.epoch, progress.now_ms, progress.watermark, digest, progress.ended, progress.idle)
