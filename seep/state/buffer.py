"""Buffer state β: what was sent on one edge and is not yet covered by a durable checkpoint of every receiver.

Kept once for the edge, uncut: a receiver's part is cut out when it is sent. So a receiver that is split or merged
needs nothing from the buffer but to subscribe. Positions count from the first entry ever, so a reader keeps its
place while older entries are trimmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.state.checkpoint import Buffered


class Buffer:
    __slots__ = ("entries", "first", "memory_bytes", "saved", "size_bytes", "spilled", "trimmed")

    def __init__(self, trimmed: Progress) -> None:
        self.trimmed = trimmed
        """The announcement as of the newest entry that is gone (or of the state the partition started from)."""
        self.entries: deque[Buffered] = deque()
        self.first = 0
        """Position of entries[0]."""
        self.saved = 0
        """Position up to which entries are in the partition's newest checkpoint."""
        self.size_bytes = 0
        self.memory_bytes = 0
        self.spilled = 0
        """Position up to which entries are on disk."""

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    @property
    def newest(self) -> Progress:
        return self.entries[-1].progress if self.entries else self.trimmed

    def add(self, entry: Buffered) -> None:
        self.entries.append(entry)
        size = _size(entry)
        self.size_bytes += size
        self.memory_bytes += size

    def at(self, position: int) -> Buffered:
        return self.entries[position - self.first]

    def after(self, epoch: int) -> int:
        """Position of the first entry newer than this epoch."""
        position = self.end
        for entry in reversed(self.entries):
            if entry.progress.epoch <= epoch:
                break
            position -= 1
        return position

    def trim(self, upto: int) -> bool:
        """Forget entries up to this epoch; was there any?"""
        entries = self.entries
        before = self.first
        while entries and entries[0].progress.epoch <= upto:
            gone = entries.popleft()
            self.trimmed = gone.progress
            self._forget(gone, self.first)
            self.first += 1
        return self.first > before

    def cut_from(self, epoch: int) -> None:
        """Forget entries of this epoch and later ones: the partition's life ended before it."""
        while self.entries and self.entries[-1].progress.epoch >= epoch:
            self._forget(self.entries.pop(), self.end)
        self.saved = min(self.saved, self.end)
        self.spilled = min(self.spilled, self.end)

    def _forget(self, entry: Buffered, position: int) -> None:
        size = _size(entry)
        self.size_bytes -= size
        if position >= self.spilled:
            self.memory_bytes -= size

    def spill(self, limit_bytes: int, to_disk: Callable[[Batch], Batch]) -> None:
        """Put the oldest entries on disk until what is in memory is within the limit."""
        position = max(self.spilled, self.first)
        while self.memory_bytes > limit_bytes and position < self.end:
            entry = self.at(position)
            self.entries[position - self.first] = Buffered(entry.progress, tuple(map(to_disk, entry.batches)))
            self.memory_bytes -= _size(entry)
            position += 1
            self.spilled = position

    @property
    def saved_bytes(self) -> int:
        """Of what is kept and is in a checkpoint already."""
        return sum(_size(self.at(position)) for position in range(self.first, max(self.saved, self.first)))

    def unsaved(self, full: bool) -> tuple[Buffered, ...]:
        """The entries for the next checkpoint; from now on they count as saved."""
        start = self.first if full else max(self.saved, self.first)
        self.saved = self.end
        return tuple(self.at(position) for position in range(start, self.end))

    def restore(self, entries: Iterable[Buffered]) -> None:
        for entry in entries:
            if entry.progress.epoch > self.newest.epoch:
                self.add(entry)
        self.saved = self.end


def _size(entry: Buffered) -> int:
    return sum(batch.size_bytes for batch in entry.batches)
