"""Rows that kill the process which runs them, and how user code is run once one of them is suspected.

A row that killed it is left out, by what the journal says. While somebody looks for one, user code runs for one row
at a time, and which one is noted where it outlives the process before it runs. Otherwise nothing is done here, and
nothing costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from seep.errors import Misuse

DIED = "the process died on this row, again and again"
"""What a dead letter says of it."""
DIED_IN_MESSAGE = "the process died on this message, again and again"
DIED_IN_CALL = "the process died in this call, again and again"


class Spot(NamedTuple):
    """A row on its way through one node in one epoch, however the flow is partitioned."""

    step: str
    """Which of the node's steps runs it."""
    bucket: int
    """Of its origin."""
    position: int
    """Among the rows that came to the step from that bucket, in this epoch."""

    @property
    def is_call(self) -> bool:
        """Of a timer, a tick or `on_epoch`, for a key: no row, but counted and left out like one."""
        return self.step.startswith("on_")


class Condemned(Exception):
    """This row killed the process as often as it takes. It is not run again."""

    def __init__(self, spot: Spot, shown: str, fails: bool) -> None:
        super().__init__(f"{shown}: row {spot.bucket}:{spot.position}")
        self.spot = spot
        self.shown = shown
        """The step, as users know it."""
        self.fails = fails
        """``on_error="fail"``: the flow is to stop."""


class Care:
    """Of one epoch."""

    def __init__(
        self,
        skips: frozenset[Spot] = frozenset(),
        note: Callable[[Spot | None], bool] | None = None,
        suspect: Spot | None = None,
    ) -> None:
        """`note`: keeps where the run is (None: at no row), and says whether that row is not to be run any more.
        `suspect`: where the one before us was when it died."""
        self.skips = skips
        self.suspect = suspect
        self._note = note

    @property
    def one_by_one(self) -> bool:
        """Is user code to be run for one row at a time?"""
        return self._note is not None

    @property
    def needed(self) -> bool:
        return self._note is not None or bool(self.skips)

    def begin(self, spot: Spot, shown: str, fails: bool) -> None:
        """User code is about to run for this row. Raises Condemned."""
        if self._note is not None and self._note(spot):
            raise Condemned(spot, shown, fails)

    def end(self) -> None:
        """What runs from now on is no user's code."""
        if self._note is not None:
            self._note(None)

    @contextmanager
    def whole(self, spot: Spot, shown: Callable[[], str]) -> Iterator[None]:
        """Around a call of user code of which no single row can be left out. Raises Misuse once it is condemned."""
        if self._note is not None and self._note(spot):
            raise Misuse(f"{shown()}: the process died again and again in this call; fix it, or what it calls")
        try:
            yield
        finally:
            self.end()


CAREFREE = Care()


def carefree(epoch: int) -> Care:
    return CAREFREE
