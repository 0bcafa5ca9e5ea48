"""The checkpoint that a pending Replace wants kept: the newest one, or one at exactly its epoch.

Once said, it stays the same one: later checkpoints must not let it go while the Replace is pending.
"""

from __future__ import annotations

from typing import NamedTuple

from seep.model.ids import FOREVER, PartitionId
from seep.partition.desk import Desk
from seep.partition.saver import Saver
from seep.protocol.journal import Replace


class Pinned(NamedTuple):
    replace: int
    version: int
    epoch: int


class Pin:
    def __init__(self, desk: Desk, partition: PartitionId, saver: Saver) -> None:
        self.desk = desk
        self.partition = partition
        self.saver = saver
        self.kept: Pinned | None = None

    @property
    def pending(self) -> Replace | None:
        return self.desk.journal.replacing(self.partition)

    def look(self) -> bool:
        """By what the journal says now; answers whether a checkpoint has to be made for it."""
        replace = self.pending
        if replace is None:
            self.kept = None
            return False
        for new in replace.new:
            entry = self.desk.journal.entries[new]
            for who, version in entry.base:
                if who == self.partition:
                    self.kept = Pinned(replace.number, version, entry.base_epoch)
                    return False
        if self.kept is not None and self.kept.replace == replace.number and replace.at in (0, self.kept.epoch):
            return False
        found = self.saver.at(replace.at) if replace.at else (self.saver.durable[-1] if self.saver.durable else None)
        self.kept = Pinned(replace.number, found[0], found[1]) if found else None
        return not replace.at and not found and not self.saver.busy

    def epoch_after(self, epoch: int) -> int:
        """The epoch yet to come at which a checkpoint is asked for; FOREVER: none."""
        replace = self.pending
        return replace.at if replace is not None and replace.at > epoch else FOREVER

    def told(self) -> tuple[int, int]:
        """(version, epoch) for the controller; version 0: it is not durable yet."""
        if self.kept is not None:
            return self.kept.version, self.kept.epoch
        replace = self.pending
        if replace is not None and replace.at and self.saver.underway(replace.at):
            return 0, replace.at
        return 0, -1
