"""Who only prepares to take over gives way to those that serve rows.

Linux shares processors out between sessions first (autogroup), and each worker has a session of its own: how nice its
threads are counts only among themselves. But the weight of a session can be lowered, and raised again, by the session
itself. Where workers share one (Spark, Ray), or the system does not share out so, nothing is changed.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

SHADOW_NICENESS = 10
AUTOGROUP = Path("/proc/self/autogroup")


class Precedence:
    def __init__(self) -> None:
        self._niceness = 0
        self._settable = AUTOGROUP.exists() and os.getsid(0) == os.getpid()

    def give_way(self, gives: bool) -> None:
        """From now on; the system lets us change our mind ten times a second, so it is asked again if it refuses."""
        niceness = SHADOW_NICENESS if gives else 0
        if not self._settable or niceness == self._niceness:
            return
        try:
            AUTOGROUP.write_text(str(niceness))
        except OSError as refusal:
            self._settable = refusal.errno == errno.EAGAIN
        else:
            self._niceness = niceness
