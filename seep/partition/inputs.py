"""The receiving side of a partition: subscriptions, alignment of epochs, canonical order.

An epoch can be taken when every sender alive in it has announced it. Which senders those are comes from the journal
alone. A channel is bound to one generation of its sender and to one subscription number; whatever arrives under
another number, or out of sequence, is never taken: the receiver subscribes again and gets it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from seep.model.batch import Batch
from seep.model.epoch import NOTHING, UNKNOWN, Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.partition.contract import Edge
from seep.partition.desk import Desk
from seep.protocol.journal import Entry
from seep.protocol.messages import (
    Accepted,
    Credit,
    Frame,
    Refused,
    Subscribe,
    SubscriptionId,
    Trim,
    Unsubscribe,
)


class Taken(NamedTuple):
    """One epoch of input."""

    batches: list[tuple[int, Batch]]
    now_ms: int
    watermark: int
    """The least of those that are neither ended nor idle; without such ones the end of time, or where some are idle
    the beginning: then it stays where it was."""
    ended: bool
    idle: bool
    reached: int = BEGINNING
    """The greatest that the ended ones had got to."""


class Channel:
    """One edge from one sender, as its receiver sees it."""

    __slots__ = (
        "accepted",
        "announced",
        "asked_ms",
        "current",
        "edge",
        "heard_ms",
        "partial",
        "queue",
        "sender",
        "sequence",
        "subscription",
    )

    def __init__(self, edge: Edge, sender: Entry) -> None:
        self.edge = edge
        self.sender = sender
        self.subscription: SubscriptionId | None = None
        # Of that subscription; `subscribe` sets them, before anybody looks.
        self.accepted: bool
        self.sequence: int
        self.announced: int
        self.asked_ms: float
        self.heard_ms: float
        self.queue: deque[tuple[Progress, tuple[Batch, ...]]] = deque()
        self.partial: list[Batch] = []
        self.current = NOTHING
        """The newest announcement not later than the receiver's τ: what holds until the next one."""


class Inputs:
    def __init__(self, desk: Desk, me: Entry, edges: Iterable[Edge]) -> None:
        self.desk = desk
        self.me = me.partition
        self.generation: Generation = me.generation
        self.key_range: KeyRange = me.key_range
        self.edges = tuple(edges)
        self.channels: dict[tuple[str, PartitionId], Channel] = {}
        self.order: list[Channel] = []
        self.by_subscription: dict[SubscriptionId, Channel] = {}
        self.taken = 0
        self.highest = 0
        self.watermark = BEGINNING
        """The lowest of this partition and of those behind it."""
        self.rows_by_edge = {edge.name: 0 for edge in self.edges}
        """Taken since it began here."""
        self.number = 0
        self.digests: dict[tuple[str, PartitionId], dict[int, int]] = {}
        """What each sender announced for epochs not yet durable here: a replay must announce the same."""
        self.failure = ""

    # --- who to listen to ----------------------------------------------------------------------------------------

    def adopt(self, last: int) -> None:
        """Listen to exactly the senders the journal names for epochs (taken, last]."""
        journal = self.desk.journal
        wanted: dict[tuple[str, PartitionId], tuple[Edge, Entry]] = {}
        if self.taken < last:
            for edge in self.edges:
                for entry in journal.of(edge.source):
                    if entry.alive_after(self.taken) and entry.first <= last:
                        wanted[edge.name, entry.partition] = (edge, entry)
        for key in [k for k in self.channels if k not in wanted]:
            self._leave(self.channels.pop(key))
        for key, (edge, entry) in wanted.items():
            channel = self.channels.get(key)
            if channel is None:
                channel = self.channels[key] = Channel(edge, entry)
                self.subscribe(channel)
                continue
            known, channel.sender = channel.sender, entry
            if known.generation != entry.generation or known.worker != entry.worker:
                self.subscribe(channel)
            while channel.queue and channel.queue[-1][0].epoch > entry.last:
                channel.queue.pop()
        self.order = sorted(self.channels.values(), key=lambda c: (c.edge.port, c.sender.key_range.low, c.sender.first))

    def subscribe(self, channel: Channel) -> None:
        """Ask (again) for everything not yet taken; what came under the old number and is untaken is dropped."""
        if channel.subscription is not None:
            self.by_subscription.pop(channel.subscription, None)
        sender = channel.sender
        self.number += 1
        channel.subscription = subscription = SubscriptionId(self.me, self.generation, self.number)
        self.by_subscription[subscription] = channel
        channel.accepted = False
        channel.sequence = 0
        channel.queue.clear()
        channel.partial.clear()
        channel.announced = after = max(self.taken, sender.first - 1)
        channel.asked_ms = channel.heard_ms = self.desk.now_ms
        self.desk.send(
            sender.worker,
            Subscribe(
                sender.partition,
                sender.generation,
                subscription,
                channel.edge.name,
                EVERYTHING if channel.edge.broadcast else self.key_range,
                after,
                self.desk.journal.version,
                self.desk.worker,
            ),
        )

    def _leave(self, channel: Channel) -> None:
        if channel.subscription is not None:
            self.by_subscription.pop(channel.subscription, None)
            self.desk.send(
                channel.sender.worker,
                Unsubscribe(channel.subscription, channel.sender.partition, channel.edge.name),
            )

    def retry(self) -> None:
        """Ask again where no answer came, or where nothing is queued and the sender has been silent.

        A lost frame shows as a gap when the next one comes; the last one before a pause shows only as silence.
        """
        now_ms, wait_ms = self.desk.now_ms, self.desk.settings.retry_ms
        for channel in self.order:
            if now_ms - channel.asked_ms < wait_ms:
                continue
            silent = now_ms - channel.heard_ms >= wait_ms
            if not channel.accepted or (silent and not channel.queue and channel.announced < channel.sender.last):
                self.subscribe(channel)
            elif silent:
                self._credit(channel)
                channel.asked_ms = now_ms

    @property
    def heard(self) -> int:
        """The highest epoch number heard of, taken or not."""
        return max(self.taken, self.highest)

    @property
    def accepted(self) -> bool:
        return all(channel.accepted for channel in self.order)

    # --- what comes in -------------------------------------------------------------------------------------------

    def on_accepted(self, message: Accepted) -> None:
        channel = self.by_subscription.get(message.subscription)
        if channel is not None:
            channel.accepted = True
            channel.heard_ms = self.desk.now_ms
            self.desk.changed = True

    def on_refused(self, message: Refused) -> None:
        channel = self.by_subscription.get(message.subscription)
        if channel is None:
            return
        if message.reason == "trimmed":
            self.failure = (
                f"{self.me} needs epochs after {self.taken} from {message.sender}, which no longer has them:"
                " restore from a savepoint"
            )
            self.desk.changed = True
        channel.asked_ms = min(channel.asked_ms, self.desk.now_ms - 0.8 * self.desk.settings.retry_ms)

    def on_frame(self, frame: Frame) -> bool:
        """Queue the frame; answers whether an announcement came with it."""
        channel = self.by_subscription.get(frame.subscription)
        if channel is None:
            self.desk.count("dropped_fenced")
            return False
        channel.heard_ms = self.desk.now_ms
        if frame.sequence != channel.sequence:
            if frame.sequence > channel.sequence:
                self.subscribe(channel)
            else:
                self.desk.count("dropped_duplicate")
            return False
        channel.sequence += 1
        if frame.batch is not None:
            channel.partial.append(frame.batch)
        progress = frame.progress
        if progress is None:
            return False
        if progress.epoch > self.highest:
            self.highest = progress.epoch
        self._announce(channel, progress)
        return True

    def _announce(self, channel: Channel, progress: Progress) -> None:
        batches = tuple(channel.partial)
        channel.partial.clear()
        epoch = progress.epoch
        digests = self.digests.setdefault((channel.edge.name, channel.sender.partition), {})
        # What it announces of epochs before its life is not its word: that depends on where it was restored from.
        known = epoch >= channel.sender.first and progress.digest != UNKNOWN
        if known and digests.setdefault(epoch, progress.digest) != progress.digest:
            self.failure = (
                f"Misuse: {channel.sender.partition} replayed epoch {epoch} with other output than before: its code is"
                " not deterministic (a clock, a lookup, an order of its own?)"
            )
            self.desk.changed = True
        if epoch <= max(self.taken, channel.sender.first - 1):
            self.desk.count("dropped_duplicate", sum(batch.rows for batch in batches))
            if epoch >= channel.current.epoch:
                channel.current = progress
        elif epoch <= channel.sender.last:
            channel.queue.append((progress, batches))
        if progress.ended:
            channel.announced = FOREVER
        elif epoch > channel.announced:
            channel.announced = epoch

    # --- taking --------------------------------------------------------------------------------------------------

    def bound(self) -> int:
        """The latest epoch that every sender alive in it has announced."""
        bound = FOREVER
        for channel in self.order:
            if channel.announced < bound and channel.announced < channel.sender.last:
                bound = channel.announced
        return bound if self.order else self.taken

    def next_epoch(self) -> int:
        """The earliest untaken epoch that any sender said something in (FOREVER: none)."""
        return min((c.queue[0][0].epoch for c in self.order if c.queue), default=FOREVER)

    @property
    def ended(self) -> bool:
        """Has every sender said, in what is taken, that no row will follow?"""
        return bool(self.order) and all(c.current.ended and not c.queue for c in self.order)

    def take(self, epoch: int) -> Taken:
        """The epoch's batches in canonical order, and what was announced with it."""
        batches: list[tuple[int, Batch]] = []
        now_ms, watermark, ended, idle, active, reached = 0, FOREVER, True, False, False, BEGINNING
        for channel in self.order:
            sender = channel.sender
            if not sender.first <= epoch <= sender.last:
                continue
            if channel.queue and channel.queue[0][0].epoch == epoch:
                channel.current, found = channel.queue.popleft()
                port = channel.edge.port
                batches.extend((port, batch) for batch in found)
                self.rows_by_edge[channel.edge.name] += sum(batch.weight for batch in found)
            current = channel.current
            now_ms = max(now_ms, current.now_ms)
            ended = ended and current.ended
            if channel.edge.timeless:
                continue
            if current.idle:
                idle = True
            elif current.ended:
                reached = max(reached, channel.edge.watermark(current.watermark))
            else:
                active = True
                watermark = min(watermark, channel.edge.watermark(current.watermark))
        self.move(epoch)
        if idle and not active:
            return Taken(batches, now_ms, BEGINNING, ended, True)
        return Taken(batches, now_ms, watermark, ended, False, reached)

    def move(self, epoch: int) -> None:
        """Everything up to this epoch is taken."""
        self.taken = epoch
        over = [key for key, channel in self.channels.items() if channel.sender.last <= epoch]
        for key in over:
            self._leave(self.channels.pop(key))
        if over:
            self.order = [c for c in self.order if (c.edge.name, c.sender.partition) in self.channels]

    @property
    def rows(self) -> int:
        return sum(self.rows_by_edge.values())

    # --- what goes back ------------------------------------------------------------------------------------------

    def give_credit(self) -> None:
        for channel in self.order:
            if channel.accepted:
                self._credit(channel)

    def _credit(self, channel: Channel) -> None:
        if channel.subscription is not None:
            sender = channel.sender
            said = (self.taken, self.highest, self.watermark, self.rows)
            credit = Credit(channel.subscription, sender.partition, channel.edge.name, *said)
            self.desk.send(sender.worker, credit)

    def trim(self, upto: int) -> None:
        """Tell every sender of the journal that nothing up to this epoch will be asked for again."""
        version = self.desk.journal.version
        for edge in self.edges:
            for entry in self.desk.journal.of(edge.source):
                self.desk.send(
                    entry.worker,
                    Trim(entry.partition, edge.name, self.me, self.generation, upto, version),
                )
        for key, digests in list(self.digests.items()):
            for epoch in [e for e in digests if e <= upto]:
                del digests[epoch]
            if not digests:
                del self.digests[key]  # its sender may have gone
