"""Checkpoints of one partition: when they are made, which are durable, which may go, and what may be trimmed.

Only one is written at a time; a later one waits as a value. Restore may fall back to the second newest, so upstream
is told to trim up to that one's epoch, and never past one that a pending Replace starts from.

A version is never written twice: each generation counts from a number of its own. Otherwise one that fell back past a
damaged checkpoint would put another epoch under a version that a pending Replace starts from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from seep.partition.desk import Desk
from seep.protocol.effects import DropCheckpoints, PutCheckpoint, StoreReply
from seep.protocol.journal import Entry
from seep.state.checkpoint import Checkpoint, Point

VERSIONS = 1_000_000_000
"""So many versions has one generation: one every millisecond for eleven days."""

LONG_CHAIN = 4
"""Checkpoints in a chain after which even a large buffer is written again, so that restore reads few."""


class Saver:
    def __init__(self, desk: Desk, me: Entry, on_durable: Callable[[Checkpoint], None]) -> None:
        self.desk = desk
        self.me = me
        self.on_durable = on_durable
        self.version = me.generation.number * VERSIONS
        self.parent = 0
        """What the next increment builds on."""
        self.chain = 0
        """Length of the current chain of increments."""
        self.full_next = True
        self.waiting: deque[Checkpoint] = deque()
        self.writing: Checkpoint | None = None
        self.durable: list[Point] = []
        """Oldest first; own ones only."""
        self.unseen = 0
        """The version of one that is known by name only."""
        self.last_ms = desk.now_ms
        self.catching_up = False
        self.state_bytes = 0
        """Of the last full one."""
        self.fenced = False

    def restored(self, chain: list[Checkpoint]) -> None:
        """The store has given this chain: go on with it. The point before it is as good as it was to whoever wrote
        this one; but if a later one was damaged, that point may be gone, so nothing is to start from it."""
        newest = chain[-1]
        self.unseen = 0 if newest.before is None else newest.before.version
        point = Point(newest.version, newest.epoch, tuple(saved.version for saved in chain))
        self.durable = [point] if newest.before is None else [newest.before, point]
        self.parent = newest.version
        self.chain = len(chain)
        self._weigh(chain[0])
        self.full_next = False

    def began(self, age_ms: float) -> None:
        """What was restored was already so old."""
        self.catching_up = True
        self.last_ms = self.desk.now_ms - min(max(age_ms, 0.0), self.desk.settings.checkpoint_ms)

    def due(self, behind_ms: float) -> bool:
        """Is it time for the next one? After a restore, not in the middle of catching up, unless that takes long: what
        is saved then would spare the next restore little."""
        passed_ms, every_ms = self.desk.now_ms - self.last_ms, self.desk.settings.checkpoint_ms
        waits = self.catching_up and behind_ms > every_ms / 4 and passed_ms < 2 * every_ms
        return passed_ms >= every_ms and not waits

    def lacks(self, epoch: int) -> bool:
        """Is there anything to save? Not before the newest two are both of this epoch: only then may upstream let go of
        all that precedes it, and at its limit it cuts no later one before it has."""
        return len(self.durable) < 2 or epoch > self.durable[-2].epoch

    def next_is_full(self) -> bool:
        return self.full_next or self.chain > self.desk.settings.increments

    def prefers_full(self, again_bytes: int) -> bool:
        """Of a state that has mostly changed a full checkpoint is as good as an increment, but for the buffer that it
        writes again: where that is much more than the state, only now and then."""
        return again_bytes <= 2 * self.state_bytes or self.chain >= LONG_CHAIN

    def add(self, make: Callable[[int, int], Checkpoint], full: bool) -> Checkpoint:
        """`make(version, parent)` builds the value now; it is written as soon as the one before it is durable."""
        self.version += 1
        checkpoint = make(self.version, 0 if full else self.parent)
        self.parent = self.version
        self.chain = 1 if full else self.chain + 1
        self.full_next = self.catching_up = False
        if full:
            self._weigh(checkpoint)
        self.last_ms = self.desk.now_ms
        self.waiting.append(checkpoint)
        self._write()
        return checkpoint

    def _weigh(self, full: Checkpoint) -> None:
        self.state_bytes = 0 if full.state is None else full.state.size_bytes

    def _write(self) -> None:
        if self.writing is None and self.waiting and not self.fenced:
            self.writing = checkpoint = self.waiting.popleft()
            self.desk.call(self, lambda token: PutCheckpoint(token, checkpoint), self._written)

    def _written(self, reply: StoreReply) -> None:
        checkpoint, self.writing = self.writing, None
        assert checkpoint is not None
        if reply.error == "fenced":
            self.fenced = self.desk.changed = True
            self.desk.count("refused_fenced")
            return
        if reply.error:
            # Increments behind a lost one are worthless: start a new chain from a full checkpoint.
            self.desk.count("checkpoints_failed")
            self.waiting.clear()
            self.full_next = True
            return
        self.desk.count("checkpoints")
        chain: tuple[int, ...] = (checkpoint.version,)
        if checkpoint.parent:
            chain = next(p.chain for p in reversed(self.durable) if p.version == checkpoint.parent) + chain
        root = reply.value or chain[0]  # the store may have folded what lies before
        self.durable.append(Point(checkpoint.version, checkpoint.epoch, tuple(v for v in chain if v >= root)))
        self.on_durable(checkpoint)
        self._write()

    @property
    def busy(self) -> bool:
        return self.writing is not None or bool(self.waiting)

    def underway(self, epoch: int) -> bool:
        """Is a checkpoint of this epoch being written?"""
        return any(c.epoch == epoch for c in self.waiting) or (self.writing is not None and self.writing.epoch == epoch)

    def fallback_epoch(self, base_epoch: int) -> int:
        """τ of the oldest checkpoint that restore may use."""
        return self.durable[-2].epoch if len(self.durable) >= 2 else base_epoch

    def at(self, epoch: int) -> tuple[int, int] | None:
        """The newest durable checkpoint of exactly this epoch that is known to be there, as (version, epoch)."""
        seen = (point for point in reversed(self.durable) if point.version != self.unseen)
        return next((point[:2] for point in seen if point.epoch == epoch), None)

    def wrote(self, epoch: int) -> bool:
        """Is there a durable checkpoint of this epoch of our own generation? Whoever is restored later then starts from
        that or a later one, not from what a generation before us has left in some memory."""
        first = self.me.generation.number * VERSIONS
        return any(point.epoch == epoch and point.version > first for point in self.durable)

    def drop_old(self, pinned: set[int]) -> None:
        """Keep the newest two, the pinned ones and the one before each (should a pinned one be damaged, whoever starts
        from it falls back to that), and whatever they build on."""
        points = [*self.durable[1:], None]
        keep = [
            point
            for i, (point, after) in enumerate(zip(self.durable, points, strict=True))
            if i >= len(points) - 2 or point.version in pinned or (after is not None and after.version in pinned)
        ]
        if len(keep) == len(self.durable) or not pinned <= {point.version for point in keep}:
            return  # of one that a generation before us pinned, we do not know what it builds on
        self.durable = keep
        newest = keep[-1].version
        kept = {version for point in keep for version in point.chain if version < newest}
        self.desk.effects.append(DropCheckpoints(self.me.partition, self.me.generation, newest, tuple(sorted(kept))))
