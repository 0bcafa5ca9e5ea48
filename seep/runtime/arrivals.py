"""How fast rows come to a source, and for how long the oldest has waited, where the source knows how many wait."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from seep.partition.source import SourcePartition

WINDOW_MS = 10_000.0


class Arrival(NamedTuple):
    rows: int
    """Arrived since the beginning: read, and waiting."""
    lag_rows: int
    lag_seconds: float


class Arrivals:
    """Of one source partition."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, partition: SourcePartition, now_ms: float) -> Arrival | None:
        """None: the source cannot say."""
        lag = rows_behind(partition)
        if lag is None:
            return None
        arrived = partition.rows + lag
        if self._seen:
            arrived = max(arrived, self._seen[-1][1])  # what a source says of its lag may be an estimate
        self._seen.append((now_ms, arrived))
        while self._seen[0][0] < now_ms - WINDOW_MS:
            self._seen.popleft()
        first_ms, first = self._seen[0]
        by_ms = (arrived - first) / (now_ms - first_ms) if now_ms > first_ms else 0.0
        return Arrival(arrived, lag, lag / by_ms / 1000 if by_ms > 0 else 0.0)


def rows_behind(partition: SourcePartition) -> int | None:
    """Rows that lie before it; None when it cannot say."""
    behind = getattr(partition.intake, "behind", None)
    if behind is None:
        return None
    wall_ms = partition.desk.wall_ms
    found = [behind(split, known[1], wall_ms) for split, known in partition.splits.known.items() if not known[3]]
    return None if None in found else sum(found)
