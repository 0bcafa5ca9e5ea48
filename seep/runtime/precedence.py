"""Who only prepares to take over gives way to those that serve rows.

Linux shares processors out between sessions first (autogroup), and each worker has a session of its own: how nice its
threads are counts only among themselves. But the weight of a session can be lowered, and raised again, by the session
itself. Where workers share one (Spark, Ray), or the system does not share out so, nothing is changed.

Not for long: on a machine with more to do than it can, whether for us or for others, who gives way gets next to
nothing, falls ever further behind, and what it was to relieve waits.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

SHADOW_NICENESS = 10
PATIENCE_MS = 5_000.0
"""That it gives way for, at most, until it has served: a change with hundreds of megabytes of state is made by then."""
AUTOGROUP = Path("/proc/self/autogroup")


class Precedence:
    def __init__(self) -> None:
        self._niceness = 0
        self._since_ms: float | None = None
        """When it began to give way."""
        self._settable = AUTOGROUP.exists() and os.getsid(0) == os.getpid()

    def give_way(self, gives: bool, at_ms: float) -> None:
        """From now on; the system lets us change our mind ten times a second, so it is asked again if it refuses."""
        self._since_ms = (at_ms if self._since_ms is None else self._since_ms) if gives else None
        patient = self._since_ms is not None and at_ms - self._since_ms < PATIENCE_MS
        niceness = SHADOW_NICENESS if patient else 0
        if not self._settable or niceness == self._niceness:
            return
        try:
            AUTOGROUP.write_text(str(niceness))
        except OSError as refusal:
            self._settable = refusal.errno == errno.EAGAIN
        else:
            self._niceness = niceness
