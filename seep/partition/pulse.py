"""When a worker says that it is busy: whoever keeps this looks at its loop from beside it, every `report_ms`.

A loop that turns reports by itself. One that has not turned since the last look is inside one piece of work, and the
controller is told so, with how long it has been on the same epoch.
"""

from __future__ import annotations

from seep.model.ids import PartitionId
from seep.protocol.messages import Busy

Work = tuple[PartitionId, int]
"""Who is at work, and the last epoch that it has finished."""


class Pulse:
    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._turn = -1
        self._work: Work | None = None
        self._since_ms = 0.0

    def look(self, turn: int, work: Work | None, now_ms: float) -> Busy | None:
        """`turn` counts the turns of the loop; None: nothing needs to be said."""
        turned, self._turn = turn != self._turn, turn
        if turned or work != self._work:
            self._work, self._since_ms = work, now_ms
        if turned:
            return None
        who, epoch = work or (None, -1)
        return Busy(self.worker, who, epoch, now_ms - self._since_ms)
