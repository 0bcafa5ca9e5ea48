"""The same flow without checkpoints, to compare with: what would have been saved is only let go upstream.

Nothing of seep can be asked to run like this, since such a flow cannot recover; merely long intervals would not do
either, because senders keep what is not saved downstream, and stop when their buffers are full. So the one function is
replaced, in worker processes only, where the flow's code is loaded.
"""

from __future__ import annotations

import os
from typing import Any

from benchmarks.arrivals import ArrivalSink
from seep.partition.operator import OperatorPartition


class UnsavedSink(ArrivalSink):
    """An ArrivalSink that takes checkpoints out of every process in which it is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "SEEP_JOB" in os.environ:
            OperatorPartition.checkpoint = _let_go  # type: ignore[method-assign]


def _let_go(self: OperatorPartition) -> None:
    self.saver.last_ms = self.desk.now_ms
    self.inputs.trim(self.epoch)
