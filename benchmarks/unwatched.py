"""The same flow without metrics, to compare with: nothing is served, and nobody keeps time.

What metrics are made of (rows counted, epochs timed) is a part of the machines and stays. Nothing of seep can be asked
to run like this, since such a flow cannot be scaled or explained; so the two functions are replaced, in worker
processes only, where the flow's code is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.arrivals import ArrivalSink
from seep.model.ids import PartitionId
from seep.partition.worker import Partition
from seep.runtime.exporter import Exporter
from seep.runtime.timekeeper import Timekeeper

NO_PORT = 0


class UnwatchedSink(ArrivalSink):
    """An ArrivalSink that takes metrics out of every process in which it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "SEEP_JOB" in os.environ:
            Exporter.serve = _serve_nothing  # type: ignore[method-assign]
            Timekeeper.look = _keep_nothing  # type: ignore[method-assign]


def _serve_nothing(self: Exporter, address: str = "") -> int:
    return NO_PORT


def _keep_nothing(
    self: Timekeeper, partitions: Iterable[Partition], busy_ms: Mapping[PartitionId, float], now_ms: float
) -> None:
    return
