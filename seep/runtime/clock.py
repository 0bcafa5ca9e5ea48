"""The only place where real time enters: machines are handed these numbers and never ask for them."""

from __future__ import annotations

import time


def now_ms() -> float:
    """Monotonic; for intervals only."""
    return time.monotonic_ns() / 1e6


def steady_seconds() -> float:
    """Unix time as this process found it when it began, and monotonic since: a clock that is set does not move it."""
    return _BEGAN + time.monotonic()


_BEGAN = time.time() - time.monotonic()


def wall_ms() -> int:
    """Unix time; it becomes part of the data (an epoch's `now`)."""
    return time.time_ns() // 1_000_000
