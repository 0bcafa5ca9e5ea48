"""How long nothing came out because of a change, and when it had caught up: the same reckoning for every engine.

A row has the moment it arrived and its lag: the time since the open load released it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Moments = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
BEFORE_SECONDS = 5.0
"""What is usual is looked up in so many seconds before the change."""
BIN_NS = 100_000_000
SLACK_MS = 100.0


@dataclass(frozen=True)
class Change:
    what: str
    at_ns: int
    """When it was asked for, or the kill."""
    until_ns: int
    """It was over by then."""


def around(at_ns: Moments, lag_ms: Floats, change: Change) -> dict[str, Any]:
    """Rows in any order.

    ``pause_ms``: the longest time without a row. ``caught_up_seconds``: from the change until from then on no lag is
    greater than the greatest before it and 100 ms. ``behind_seconds``: the same from the last row before the pause, for
    engines that begin a change later than they are asked to.
    """
    order = np.argsort(at_ns, kind="stable")
    at_ns, lag_ms = at_ns[order], lag_ms[order]
    begin_ns = change.at_ns - int(BEFORE_SECONDS * 1e9)
    before = (at_ns >= begin_ns) & (at_ns <= change.at_ns)
    if not before.any():
        raise ValueError(f"{change.what}: no row in the {BEFORE_SECONDS:.0f} s before it")
    usual_ms = float(lag_ms[before].max()) + SLACK_MS
    gaps = np.diff(at_ns)
    during = (at_ns[1:] >= change.at_ns) & (at_ns[:-1] <= change.until_ns)
    place = int(np.argmax(np.where(during, gaps, -1)))
    pause_ns, paused_ns = int(gaps[place]), int(at_ns[place])
    over_ns = max(_last_late(at_ns, lag_ms, usual_ms, change), paused_ns)
    steady = np.diff(np.unique(at_ns[before])) / 1e6  # rows of one batch have arrived at once
    return {
        "pause_ms": round(pause_ns / 1e6, 1),
        "caught_up_seconds": round(max(0.0, (over_ns - change.at_ns) / 1e9), 2),
        "behind_seconds": round(max(0.0, (over_ns - paused_ns) / 1e9), 2),
        "usual_lag_ms": round(usual_ms - SLACK_MS, 1),
        "steady_p999_ms": round(float(np.percentile(steady, 99.9)), 1) if len(steady) else 0.0,
    }


def _last_late(at_ns: Moments, lag_ms: Floats, usual_ms: float, change: Change) -> int:
    """The end of the last tenth of a second with a row that was late, or with none at all; the change itself if there
    is none of the kind."""
    inside = (at_ns >= change.at_ns) & (at_ns < change.until_ns)
    bins = (at_ns[inside] - change.at_ns) // BIN_NS
    count = int((change.until_ns - change.at_ns) // BIN_NS)
    worst = np.full(max(count, 1) + 1, np.inf)
    greatest = np.full(len(worst), -np.inf)
    np.maximum.at(greatest, bins, lag_ms[inside])
    there = np.isfinite(greatest)
    worst[there] = greatest[there]
    late = np.flatnonzero(worst[:count] > usual_ms)
    return change.at_ns + (int(late[-1]) + 1) * BIN_NS if len(late) else change.at_ns
