"""How long something took, counted by length: what a Prometheus histogram is made of."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_MS = tuple(0.5 * 2**step for step in range(16))
"""0.5 ms, doubling, to 16 s; longer ones are counted beyond the last."""


class Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, took_ms: float) -> None:
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    def with_one(self, took_ms: float) -> Histogram:
        """Another one, with this counted too."""
        more = Histogram()
        more.counts, more.sum_ms = list(self.counts), self.sum_ms
        more.add(took_ms)
        return more

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound in seconds, how many were at most as long), the last without a bound."""
        found, total = [], 0
        for bound, count in zip([*(str(ms / 1000) for ms in BOUNDS_MS), "+Inf"], self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
