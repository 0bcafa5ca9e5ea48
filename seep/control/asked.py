"""What the controller was asked for and has not begun yet.

What is begun is one change of the journal, and that may never be written: the disk is full, the store is away. Nobody
asks a second time for what has been accepted, so until the change is known to be there it is only lent.
"""

from __future__ import annotations

from collections import deque

from seep.control.requests import Rebalance, Request, ScaleTo
from seep.protocol.journal import Journal, Replace

TRIES = 5
Before = tuple[tuple[Request, ...], dict[str, int]]


class Asked:
    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.tries: dict[str, int] = {}
        """By operator: how often a Replace that failed was begun anew by itself."""
        self._before = self.now()
        self._left = 0
        """So many of those that wait were left by the change that is being written."""

    def again(self, journal: Journal, replace: Replace) -> None:
        """A Replace that a fault made fail was asked for by somebody: begin it anew, a few times."""
        tries = self.tries[replace.operator] = self.tries.get(replace.operator, 0) + 1
        if tries <= TRIES:
            more = len(replace.ranges) - len(replace.old)
            count = len(journal.live(replace.operator)) + more
            self.waiting.append(ScaleTo(replace.operator, count) if more else Rebalance(replace.operator))

    def now(self) -> Before:
        """As it is before a change is thought of."""
        return tuple(self.waiting), dict(self.tries)

    def lend(self, before: Before | None) -> None:
        """The change is being written; None: it begins nothing that was asked for."""
        self._before = before or self.now()
        self._left = len(self.waiting)

    def take_back(self) -> None:
        """It was not written: all of it is asked for still, and what has come since."""
        came = list(self.waiting)[self._left :]
        before, self.tries = self._before
        self.waiting = deque((*before, *came))
