"""Which key ranges an operator's partitions should have: split points and joins by measured load.

Each partition tells how many rows it takes in each group of buckets. Inside the part of a group that one partition
owns, rows are taken to be spread evenly; if they are not, the next measurement, by then of smaller parts, shows it.
Without a measurement of every partition (at the start, or of sources and sinks) ranges are cut and joined by width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from seep.model.ids import GROUP_BUCKETS, KeyRange, PartitionId
from seep.protocol.journal import Entry

Loads = Mapping[PartitionId, Sequence[int]]
"""`Status.load` of each partition that has one."""

UNEVEN = 1.2
"""Rebalancing begins where the busiest partition has so much more than the mean, ..."""
GAIN = 0.95
"""... and only if it is left with less than this share of what it had."""


class Profile:
    """The load of an operator over its key ranges, as steps of even load."""

    def __init__(self, live: Sequence[Entry], loads: Loads) -> None:
        """`live`: entries whose ranges tile, in their order."""
        self.known = all(loads.get(entry.partition) for entry in live)
        self._edges = [live[0].key_range.low]
        self._below = [0]
        """Load below each edge."""
        for entry in live:
            self._add(entry.key_range, loads[entry.partition] if self.known else ())

    def _add(self, whole: KeyRange, load: Sequence[int]) -> None:
        low = whole.low
        while low < whole.high:
            group = low // GROUP_BUCKETS
            high = min(whole.high, (group + 1) * GROUP_BUCKETS)
            rows = load[group] if group < len(load) else 0
            # In 1/4,096 of a row: every bucket's share is a whole number, and sums are exact.
            share = rows * 4096 // (high - low)
            self._edges.append(high)
            self._below.append(self._below[-1] + share * (high - low))
            low = high

    def below(self, bucket: int) -> int:
        """The load of all buckets before this one."""
        step = min(bisect_right(self._edges, bucket), len(self._edges) - 1)
        low, high = self._edges[step - 1], self._edges[step]
        rows = self._below[step] - self._below[step - 1]
        return self._below[step - 1] + rows * (bucket - low) // (high - low)

    def of(self, key_range: KeyRange) -> int:
        return self.below(key_range.high) - self.below(key_range.low)

    def busiest(self, ranges: Sequence[KeyRange]) -> int:
        return max(map(self.of, ranges))

    def split(self, whole: KeyRange, parts: int) -> list[KeyRange]:
        """As many ranges, of equal load as far as whole buckets allow; of equal width where there is none."""
        total, start = self.of(whole), self.below(whole.low)
        if not total:
            return list(whole.split(parts))
        edges = [whole.low]
        for part in range(1, parts):
            edge = self._nearest(start * parts + total * part, parts)
            edges.append(min(max(edge, edges[-1] + 1), whole.high - (parts - part)))
        return [KeyRange(low, high) for low, high in pairwise([*edges, whole.high])]

    def _nearest(self, goal: int, parts: int) -> int:
        """The edge between two buckets with the load below it closest to goal / parts."""
        low, high = self._edges[0], self._edges[-1]
        while low < high:  # the first edge with at least that much below it
            middle = (low + high) // 2
            if self.below(middle) * parts < goal:
                low = middle + 1
            else:
                high = middle
        if low > self._edges[0] and goal - self.below(low - 1) * parts < self.below(low) * parts - goal:
            return low - 1
        return low


def plan_scale(live: Sequence[Entry], count: int, loads: Loads) -> tuple[list[PartitionId], list[KeyRange]]:
    """Which partitions to replace, and by which ranges, to get to this many.

    The busiest are split, those neighbours are merged that have the least together; the others stay as they are. If
    that leaves one far busier than the mean, all are cut anew: of two equal ones made three, one would have half of
    the load, and would be the next bottleneck.
    """
    profile = Profile(live, loads)
    old, ranges = _least_change(live, count, profile)
    if not old or not profile.known:
        return old, ranges
    left = [entry.key_range for entry in live if entry.partition not in old]
    even, busiest = profile.split(_whole(live), len(left) + len(ranges)), profile.busiest([*left, *ranges])
    if busiest * len(even) <= UNEVEN * profile.of(_whole(live)) or profile.busiest(even) > GAIN * busiest:
        return old, ranges
    return changed(live, even)


def _least_change(live: Sequence[Entry], count: int, profile: Profile) -> tuple[list[PartitionId], list[KeyRange]]:
    ranges = [[entry.key_range] for entry in live]
    groups = [[entry.partition] for entry in live]
    while sum(map(len, ranges)) < count:
        able = [i for i, entry in enumerate(live) if entry.key_range.size > len(ranges[i])]
        if not able:
            break
        chosen = max(able, key=lambda i: (profile.of(live[i].key_range) // len(ranges[i]), ranges[i][0].size, -i))
        ranges[chosen] = profile.split(live[chosen].key_range, len(ranges[chosen]) + 1)
    while len(ranges) > max(1, count):
        pairs = [KeyRange(one[0].low, other[0].high) for one, other in pairwise(ranges)]
        least = min(range(len(pairs)), key=lambda i: (profile.of(pairs[i]), pairs[i].size, i))
        ranges[least] = [pairs[least]]
        groups[least] += groups[least + 1]
        del ranges[least + 1], groups[least + 1]
    moved = [i for i in range(len(ranges)) if len(ranges[i]) > 1 or len(groups[i]) > 1]
    return [p for i in moved for p in groups[i]], [r for i in moved for r in ranges[i]]


def changed(live: Sequence[Entry], ranges: Sequence[KeyRange]) -> tuple[list[PartitionId], list[KeyRange]]:
    """What of these ranges is new, and which partitions give way to it; those that keep theirs stay."""
    kept = {entry.key_range for entry in live} & set(ranges)
    old = [entry.partition for entry in live if entry.key_range not in kept]
    return old, [key_range for key_range in ranges if key_range not in kept]


def _whole(live: Sequence[Entry]) -> KeyRange:
    return KeyRange(live[0].key_range.low, live[-1].key_range.high)


def plan_rebalance(live: Sequence[Entry], loads: Loads) -> tuple[list[KeyRange], str]:
    """As many ranges with equal load, and why; no ranges: it is not worth it, or nothing is known."""
    if len(live) < 2:
        return [], "there is one partition only"
    profile = Profile(live, loads)
    if not profile.known:
        return [], "the load is not measured yet"
    whole = _whole(live)
    mean = profile.of(whole) / len(live)
    before = profile.busiest([entry.key_range for entry in live])
    if before <= UNEVEN * mean:
        return [], f"already balanced: the busiest partition has {_times(before, mean)} the mean"
    ranges = profile.split(whole, len(live))
    after = profile.busiest(ranges)
    if after > GAIN * before:
        return [], f"nothing to gain: few keys make the busiest partition, with {_times(before, mean)} the mean"
    return ranges, f"the busiest partition goes from {_times(before, mean)} the mean to {_times(after, mean)}"


def _times(load: float, mean: float) -> str:
    return f"{load / mean if mean else 1.0:.2f} times"
