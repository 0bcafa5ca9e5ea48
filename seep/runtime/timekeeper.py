"""Where the time of a worker's partitions goes: work, and waiting by reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seep.model.ids import PartitionId
from seep.partition.operator import OperatorPartition
from seep.partition.pace import AHEAD_EPOCHS
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Partition
from seep.runtime.numbers import Timed

LOOK_MS = 50.0


class Timekeeper:
    """Looks now and then: the time between two looks in which a partition was not at work counts for the reason that it
    has now."""

    def __init__(self) -> None:
        self.timed: dict[PartitionId, Timed] = {}
        self._looked_ms: float | None = None

    def look(self, partitions: Iterable[Partition], busy_ms: Mapping[PartitionId, float], now_ms: float) -> None:
        if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_MS:
            return
        passed_ms, self._looked_ms = now_ms - (self._looked_ms or now_ms), now_ms
        for partition in partitions:
            who = partition.entry.partition
            known = self.timed.get(who, Timed())
            busy = busy_ms.get(who, 0.0)
            blocked = dict(known.blocked_ms)
            if isinstance(partition, OperatorPartition):
                blocked["checkpoint"] = partition.paused_ms
            reason = _reason(partition)
            blocked[reason] = blocked.get(reason, 0.0) + max(0.0, passed_ms - (busy - known.busy_ms))
            self.timed[who] = Timed(busy, blocked)


def _reason(partition: Partition) -> str:
    if isinstance(partition, SinkPartition):
        return "output" if partition.appending is not None else "input"
    full = partition.outputs.blocked
    if isinstance(partition, SourcePartition):
        full = full or (partition.pace.ahead and partition.outputs.waiting >= AHEAD_EPOCHS)
    return "output" if full else "input"
