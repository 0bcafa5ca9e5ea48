"""How much a source reads that has more than the flow can take.

**Rows of an epoch.** An epoch should be about as much work as its interval is long: larger ones make results late, wait
in memory by the dozen and hold back checkpoints; smaller ones cost more for each row. How fast the flow is, the source
cannot know, but it sees it: when few of its epochs wait and the next cut is in time, the next one may be larger; when a
cut comes late, because the worker was busy or too many epochs waited, it is smaller. But only if it is the rows that
take the time: that is estimated from how the time between cuts has followed their number. On a busy machine an epoch
takes its time however few rows it has; with fewer of them less would get done, and nothing would be sooner.

**Event time.** Partitions of sources that read a backlog at different speeds drift apart, and whatever joins or windows
them must remember all that lies between the fastest and the slowest. So one whose event time runs away from the flow's
watermark, which credits carry, gives empty epochs until the others have followed, and reads less from then on: all are
to move through event time alike, in epochs of one size. Only a growing distance counts: an operator may hold the
watermark back by design. When the others do not move at all, it reads on: they may be silent.

A source that is not ahead of the flow reads all there is, and none of this matters to it.
"""

from __future__ import annotations

from seep.model.ids import BEGINNING, FOREVER

AHEAD_EPOCHS = 3
"""Epochs cut and not yet taken by a receiver, beyond which a source that has more to give waits."""
GROWTH, SHRINKAGE, COLLAPSE = 1.25, 0.85, 0.6
IN_TIME, VERY_LATE = 0.75, 0.25
"""The interval, as a share of the time that passed between two cuts."""
_RECENT = 0.95
APART_EPOCHS = 8
"""How far, in epochs of its own, a source may run away from the watermark."""
LEAD_EPOCHS = 2
"""One that is further ahead than this reads no more than it does."""
STILL_EPOCHS = 20
"""After so many intervals a watermark that has not moved is not waited for."""


class Line:
    """The straight line through points of which the recent ones count most."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self._weight = _RECENT * self._weight + 1
        self._x += (x - self._x) / self._weight
        self._y += (y - self._y) / self._weight
        self._xx += (x * x - self._xx) / self._weight
        self._xy += (x * y - self._xy) / self._weight

    @property
    def slope(self) -> float:
        """0 where all points lie above each other."""
        spread = self._xx - self._x * self._x
        return (self._xy - self._x * self._y) / spread if spread > 1e-9 * self._xx else 0.0


class Pace:
    def __init__(self, first_rows: int, epoch_ms: float) -> None:
        self._rows = float(first_rows)
        self._epoch_ms = epoch_ms
        self._cut_ms: float | None = None
        """When the latest cut was made, if it had as many rows as it might."""
        self._line = Line()
        self._cut_rows = 0
        self._own = BEGINNING
        self._step = 0.0
        """How far its event time moves in an epoch."""
        self._behind: int | None = None
        """The least that the flow's watermark has been behind its own."""
        self._lead = 0.0
        """How far it is ahead of the watermark, in epochs of its own."""
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
        if self._cut_ms is None or now_ms <= self._cut_ms or self._cut_rows == 0:
            return
        passed_ms = now_ms - self._cut_ms
        self._line.add(self._cut_rows, passed_ms)
        share = self._epoch_ms / passed_ms
        if share < VERY_LATE:
            self._rows *= COLLAPSE
        elif share < IN_TIME and self._line.slope * self._rows > passed_ms / 2:
            self._rows *= SHRINKAGE
        elif (waiting <= 1 or share < IN_TIME) and self._lead <= LEAD_EPOCHS:
            self._rows += max(self._rows * (GROWTH - 1), 1.0)
        self._rows = max(1.0, self._rows)

    def wait(self) -> None:
        """The next epoch is empty, since others are behind."""
        self._rows = max(1.0, self._rows * SHRINKAGE)

    def end(self, now_ms: float, rows: int, full: bool, watermark: int) -> None:
        """It has been cut with so many rows; ``full``: there is more."""
        self._cut_ms = now_ms if full else None
        self._cut_rows = rows
        if BEGINNING < self._own < watermark < FOREVER:
            self._step += (watermark - self._own - self._step) * (0.2 if self._step else 1.0)
        self._own = watermark

    def runs_away(self, now_ms: float, watermark: int) -> bool:
        """Is its event time too far from the flow's watermark?"""
        self._lead = 0.0
        if not self.ahead or not BEGINNING < watermark < FOREVER or not BEGINNING < self._own < FOREVER:
            return False
        if watermark != self._heard:
            self._heard, self._moved_ms = watermark, now_ms
        behind = self._own - watermark
        if now_ms - self._moved_ms > STILL_EPOCHS * self._epoch_ms:
            self._behind = behind
        self._behind = behind if self._behind is None else min(self._behind, behind)
        self._lead = (behind - self._behind) / self._step if self._step > 0 else 0.0
        return self._lead > APART_EPOCHS
