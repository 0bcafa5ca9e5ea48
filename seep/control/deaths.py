"""Who dies again and again without getting any further: to restart it once more would never end."""

from __future__ import annotations

from seep.model.ids import PartitionId
from seep.protocol.messages import Status

HOPELESS = 25
"""Deaths of one partition without progress after which the flow stops with a report."""


class Deaths:
    def __init__(self) -> None:
        self._known: dict[PartitionId, tuple[int, int]] = {}
        """The epoch a partition had reached, and how often it died there."""

    def note(self, partition: PartitionId, shown: str, last: Status | None) -> str:
        """It has died once more; not empty: there is no hope, and why. ``shown``: how users know it."""
        epoch = last.epoch if last is not None else -1
        known, count = self._known.get(partition, (epoch, 0))
        self._known[partition] = (max(epoch, known), 1 if epoch > known else count + 1)
        reached, count = self._known[partition]
        if count < HOPELESS:
            return ""
        return f"SeepError: {shown} died {HOPELESS} times at epoch {reached}; see the workers' logs"
