"""Checkpoints of one partition: when they are made, which are durable, which may go, and what may be trimmed.

Only one is written at a time; a later one waits as a value. Restore may fall back to the second newest, so upstream
is told to trim up to that one's epoch, and never past one that a pending Replace starts from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from seep.model.ids import FOREVER
from seep.partition.desk import Desk
from seep.protocol.effects import DropCheckpoints, PutCheckpoint, StoreReply
from seep.protocol.journal import Entry
from seep.state.checkpoint import Checkpoint


class Saver:
    def __init__(self, desk: Desk, me: Entry, on_durable: Callable[[], None]) -> None:
        self.desk = desk
        self.me = me
        self.on_durable = on_durable
        self.version = 0
        self.chain = 0
        """Length of the current chain of increments."""
        self.full_next = True
        self.waiting: deque[Checkpoint] = deque()
        self.writing: Checkpoint | None = None
        self.durable: list[tuple[int, int, int]] = []
        """(version, epoch, version of the full one it builds on), oldest first; own ones only."""
        self.root = 0
        self.last_ms = desk.now_ms
        self.fenced = False

    def restored(self, chains: list[list[Checkpoint]]) -> None:
        """This partition has checkpoints: go on with the chain that was loaded."""
        self.durable = sorted((chain[-1].version, chain[-1].epoch, chain[0].version) for chain in chains)
        newest = chains[0]
        # What is newer than the chain we restored from was damaged or is of no use: never build on it.
        self.durable = [point for point in self.durable if point[0] <= newest[-1].version]
        self.version = newest[-1].version
        self.chain = len(newest)
        self.root = newest[0].version
        self.full_next = False

    def next_is_full(self) -> bool:
        return self.full_next or self.chain > self.desk.settings.increments

    def add(self, make: Callable[[int, int], Checkpoint], full: bool) -> Checkpoint:
        """`make(version, parent)` builds the value now; it is written as soon as the one before it is durable."""
        parent = 0 if full else self.version
        self.version += 1
        if full:
            self.root = self.version
            self.chain = 1
        else:
            self.chain += 1
        self.full_next = False
        self.last_ms = self.desk.now_ms
        checkpoint = make(self.version, parent)
        self.waiting.append(checkpoint)
        self._write()
        return checkpoint

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
        root = reply.value or (checkpoint.version if not checkpoint.parent else self._root_of(checkpoint.parent))
        self.durable.append((checkpoint.version, checkpoint.epoch, root))
        self.on_durable()
        self._write()

    def _root_of(self, version: int) -> int:
        return next(root for v, _, root in reversed(self.durable) if v == version)

    @property
    def busy(self) -> bool:
        return self.writing is not None or bool(self.waiting)

    def underway(self, epoch: int) -> bool:
        """Is a checkpoint of this epoch being written?"""
        return any(c.epoch == epoch for c in self.waiting) or (self.writing is not None and self.writing.epoch == epoch)

    def fallback_epoch(self, base_epoch: int) -> int:
        """τ of the oldest checkpoint that restore may use."""
        return self.durable[-2][1] if len(self.durable) >= 2 else base_epoch

    def at(self, epoch: int) -> tuple[int, int] | None:
        """The newest durable checkpoint of exactly this epoch, as (version, epoch)."""
        return next(((v, e) for v, e, _ in reversed(self.durable) if e == epoch), None)

    def drop_old(self, pinned: set[int]) -> None:
        """Keep the newest two, the pinned ones, and whatever they build on."""
        keep = self.durable[-2:] + [point for point in self.durable[:-2] if point[0] in pinned]
        if len(keep) == len(self.durable) or not keep:
            return
        self.durable = sorted(keep)
        newest = self.durable[-2:]
        kept = tuple(v for v in range(min(k[2] for k in keep), newest[0][2]) if any(k[2] <= v <= k[0] for k in keep))
        self.desk.effects.append(
            DropCheckpoints(self.me.partition, self.me.generation, min(newest[0][2], FOREVER), kept)
        )
