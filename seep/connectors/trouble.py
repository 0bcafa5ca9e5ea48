"""What goes wrong outside and may get better: said once in a while, for who reads the worker's log."""

from __future__ import annotations

import sys
import time

REPORT_SECONDS = 30.0
"""Between two lines about the same trouble."""


class Trouble:
    def __init__(self, who: str) -> None:
        self._who = who
        self._printed_at = -1e9
        self.latest = ""

    def hears(self, problem: object) -> None:
        self.latest = " ".join(str(problem).split()) or type(problem).__name__
        if time.monotonic() - self._printed_at > REPORT_SECONDS:
            self._printed_at = time.monotonic()
            print(f"{self._who}: {self.latest}; trying again", file=sys.stderr, flush=True)
