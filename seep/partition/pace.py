"""How much a source reads that has more than the flow can take.

**Rows of an epoch.** An epoch should be about as much work as its interval is long: larger ones make results late, wait
in memory by the dozen and hold back checkpoints; smaller ones cost more for each row. How fast the flow is, the source
cannot know, but it sees it: when few of its epochs wait and the next cut is in time, the next one may be larger; when a
cut comes late, because the worker was busy or too many epochs waited, it is smaller by as much.

**Event time.** Partitions of sources that read a backlog at different speeds drift apart, and whatever joins or windows
them must remember all that lies between the fastest and the slowest. So one whose event time runs away from the flow's
watermark, which credits carry, gives empty epochs until the others have followed. Only a growing distance counts: an
operator may hold the watermark back by design. When the others do not move at all, it reads on: they may be silent.

A source that is not ahead of the flow reads all there is, and none of this matters to it.
"""

from __future__ import annotations

from seep.model.ids import BEGINNING, FOREVER

AHEAD_EPOCHS = 3
"""Epochs cut and not yet taken by a receiver, beyond which a source that has more to give waits."""
GROWTH = 1.25
SHRINKAGE = 0.5
IN_TIME = 0.75
APART_EPOCHS = 8
"""How far, in epochs of its own, a source may run away from the watermark."""
STILL_EPOCHS = 20
"""After so many intervals a watermark that has not moved is not waited for."""
_RECENT = 0.8


class Pace:
    def __init__(self, first_rows: int, epoch_ms: float) -> None:
        self._rows = float(first_rows)
        self._epoch_ms = epoch_ms
        self._cut_ms: float | None = None
        """When the latest cut was made, if it had as many rows as it might."""
        self._own = BEGINNING
        self._step = 0.0
        """How far its event time moves in an epoch."""
        self._behind: int | None = None
        """The least that the flow's watermark has been behind its own."""
        self._heard = BEGINNING
        self._moved_ms = 0.0

    @property
    def rows(self) -> int:
        """At most, for the next epoch."""
        return max(1, int(self._rows))

    @property
    def ahead(self) -> bool:
        """Had the source more to give than the latest epoch was allowed?"""
        return self._cut_ms is not None

    def begin(self, now_ms: float, waiting: int) -> None:
        """The next epoch is cut now; so many wait to be taken."""
        if self._cut_ms is None or now_ms <= self._cut_ms:
            return
        share = self._epoch_ms / (now_ms - self._cut_ms)
        if share < IN_TIME:
            self._rows = max(1.0, self._rows * max(share, SHRINKAGE))
        elif waiting <= 1:
            self._rows = max(self._rows * GROWTH, self._rows + 1)

    def end(self, now_ms: float, full: bool, watermark: int) -> None:
        """It has been cut; ``full``: there is more."""
        self._cut_ms = now_ms if full else None
        if BEGINNING < self._own < watermark < FOREVER:
            self._step = _RECENT * self._step + (1 - _RECENT) * (watermark - self._own)
        self._own = watermark

    def runs_away(self, now_ms: float, watermark: int) -> bool:
        """Is its event time too far from the flow's watermark?"""
        if not self.ahead or not BEGINNING < watermark < FOREVER or not BEGINNING < self._own < FOREVER:
            return False
        if watermark != self._heard:
            self._heard, self._moved_ms = watermark, now_ms
        behind = self._own - watermark
        if now_ms - self._moved_ms > STILL_EPOCHS * self._epoch_ms:
            self._behind = behind
        self._behind = behind if self._behind is None else min(self._behind, behind)
        return behind - self._behind > APART_EPOCHS * self._step
