"""Workers that end before they have registered, one after the other: the next will not do better, and somebody has to
say so. A few may have met with an accident that passes (a full disk, a lost host), so it must go on for a while.
"""

from __future__ import annotations

import time

AT_LEAST = 3
PATIENCE_SECONDS = 20.0


class Unborn:
    def __init__(self) -> None:
        self._count = 0
        self._began = 0.0
        self.latest = ""
        """The last of them."""

    def lives(self) -> None:
        """Somebody has registered."""
        self._count = 0

    def ended(self, worker: str) -> None:
        """Without having registered."""
        if not self._count:
            self._began = time.monotonic()
        self._count += 1
        self.latest = worker

    def hopeless(self) -> bool:
        return self._count >= AT_LEAST and time.monotonic() - self._began >= PATIENCE_SECONDS
