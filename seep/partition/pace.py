"""How much a source reads that has more than the flow can take.

**Rows of an epoch.** An epoch should be about as much work as its interval is long: larger ones make results late, wait
in memory by the dozen and hold back checkpoints; smaller ones cost more for each row. How fast the flow is, the source
cannot know, but it sees it: when a cut is in time, the next epoch may be larger; when cuts come late, because the
worker was busy or too many epochs waited, it is smaller. But only if it is the rows that take the time: that is
estimated from how the time between cuts has followed the rows that receivers took in it. On a busy machine an epoch
takes its time however few rows it has; with fewer of them less would get done, and nothing would be sooner.

**Event time.** Partitions of sources that read a backlog at different speeds drift apart, and whatever joins or windows
them must remember all that lies between the fastest and the slowest. So one whose event time gets ahead of the flow's
watermark, which credits carry, by more than what is on its way, reads a share of what it might: the less, the further
ahead it is, in the end nothing, until the others have followed. Only a growing distance counts: an operator may hold
the watermark back by design. When the others do not move at all, it reads on: they may be silent. The share depends on
where they are, not on how it came to that: if every cut ahead of the others made the next one smaller, it would swing
between far too much and far too little, since a source hears of the others only some epochs later.

A source that is not ahead of the flow reads all there is, and none of this matters to it.
"""

from __future__ import annotations

from seep.model.ids import BEGINNING, FOREVER

AHEAD_EPOCHS = 3
"""Epochs cut and not yet taken by a receiver, beyond which a source that has more to give waits."""
GROWTH, CREEP, DECAY, AT_ONCE = 1.25, 1.05, 0.95, 1.5
IN_TIME, LONGEST = 0.6, 4
"""A cut is in time if the interval is at least this share of what passes, usually; one after so many intervals is much
too late, whatever the reason."""
_RECENT, _SMOOTH, _HARDLY = 0.95, 0.3, 0.01
LEAD_EPOCHS, APART_EPOCHS = 3.0, 8.0
"""How far ahead of the watermark, in steps of the flow beyond those that wait, a source reads all it might; from where
on nothing."""
MOST, SOME = 0.5, 0.1
"""Of the time between cuts."""
STILL_EPOCHS = 20
"""After so many intervals a watermark that has not moved is not waited for."""


class Line:
    """The straight line through points of which the recent ones count most, and errors as a share of y: one that took
    ten times as long as the others for a reason of its own counts little."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self._weight = _RECENT * self._weight + 1 / y**2
        share = 1 / y**2 / self._weight
        self._x += (x - self._x) * share
        self._y += (y - self._y) * share
        self._xx += (x * x - self._xx) * share
        self._xy += (x * y - self._xy) * share

    @property
    def share(self) -> float:
        """How much of y goes with x: 1 for a line through the origin, 0 for a level one. Where x has hardly changed
        nobody knows: then 1."""
        spread = self._xx - self._x * self._x
        if spread <= _HARDLY * self._xx:
            return 1.0
        return (self._xy - self._x * self._y) / spread * self._x / self._y


class Pace:
    def __init__(self, first_rows: int, epoch_ms: float) -> None:
        self._rows = float(first_rows)
        self._epoch_ms = epoch_ms
        self._cut_ms: float | None = None
        """When the latest cut was made, if it had as many rows as it might."""
        self._all, self._mine = Line(), Line()
        """Time between cuts by the rows that receivers took in it, and by its own of the cut before."""
        self._passed_ms = 0.0
        """Between two cuts, usually; one is early for another's delay."""
        self._usual = 0.0
        """What it might read of late: what happens now comes of that."""
        self._taken = 0
        self._cut_rows = 0
        self._own = BEGINNING
        self._flow_step = 0.0
        """How far the flow's watermark moves between two cuts."""
        self._behind: int | None = None
        """The least that the flow's watermark has been behind its own."""
        self._share = 1.0
        """Of what it might read: less than all when it is ahead of the others."""
        self._heard = BEGINNING
        self._moved_ms = 0.0

    @property
    def rows(self) -> int:
        """At most, for the next epoch."""
        return max(1, int(self._rows * self._share))

    @property
    def ahead(self) -> bool:
        """Had the source more to give than the latest epoch was allowed?"""
        return self._cut_ms is not None

    def begin(self, now_ms: float, waiting: int, taken: int) -> None:
        """The next epoch is cut now; so many wait to be taken, and so many rows have been, of all sources."""
        rows, self._taken = taken - self._taken, taken
        if self._cut_ms is None or now_ms <= self._cut_ms or self._cut_rows == 0:
            return
        passed_ms, longest_ms = now_ms - self._cut_ms, LONGEST * self._epoch_ms
        self._passed_ms += (min(passed_ms, longest_ms) - self._passed_ms) * (_SMOOTH if self._passed_ms else 1.0)
        self._usual += (self._rows - self._usual) * (_SMOOTH if self._usual else 1.0)
        self._mine.add(self._cut_rows, passed_ms)
        if rows > 0:
            self._all.add(rows, passed_ms)
        in_time = self._epoch_ms > IN_TIME * self._passed_ms
        if passed_ms >= longest_ms or (not in_time and self._takes_time()):
            self._rows = min(self._rows, self._usual * self._epoch_ms / self._passed_ms)
        elif self._share < 1.0:
            self._rows *= DECAY
        else:
            growth = GROWTH if waiting <= 1 and in_time else CREEP
            self._rows = min(self._rows * growth, max(self._rows, self._usual * AT_ONCE))
        self._rows = max(1.0, self._rows)

    def _takes_time(self) -> bool:
        """Is it its rows that take the time, or its share of everybody's? One whose rows do not matter only waits for
        the others: with fewer of them it would do so still."""
        mine = self._mine.share
        return mine > MOST or (mine > SOME and self._all.share > MOST)

    def end(self, now_ms: float, rows: int, full: bool, watermark: int) -> None:
        """It has been cut with so many rows; ``full``: there is more."""
        self._cut_ms = now_ms if full else None
        self._cut_rows = rows
        self._own = watermark

    def hears(self, now_ms: float, watermark: int, waiting: int) -> bool:
        """The flow's watermark is this, and so many of its epochs wait: may it read at all?"""
        self._share = 1.0
        if not self.ahead or not BEGINNING < watermark < FOREVER or not BEGINNING < self._own < FOREVER:
            return True
        if BEGINNING < self._heard < watermark:
            self._flow_step += (watermark - self._heard - self._flow_step) * 0.1
        else:
            self._flow_step *= 0.9
        if watermark != self._heard:
            self._heard, self._moved_ms = watermark, now_ms
        behind = self._own - watermark
        if now_ms - self._moved_ms > STILL_EPOCHS * self._epoch_ms:
            self._behind = behind
        self._behind = behind if self._behind is None else min(self._behind, behind)
        if self._flow_step > 0:
            lead = (behind - self._behind) / self._flow_step - waiting
            self._share = min(1.0, max(0.0, (APART_EPOCHS - lead) / (APART_EPOCHS - LEAD_EPOCHS)))
        return self._share > 0
