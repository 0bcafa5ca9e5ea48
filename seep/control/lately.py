"""When the partitions of each operator changed last: until a window has passed since, its numbers say little.

Whatever has changed them: the flow's start, a recovery, a change by hand or by a policy. New partitions load, compile
and fill their caches before they are as fast as they will be. So it is not the decision that counts, which may be some
seconds older, but what the journal says runs. An operator that stays as it is never settles, whatever comes to it.
"""

from __future__ import annotations

import math

from seep.control.observed import Observed
from seep.model.ids import Generation, PartitionId
from seep.protocol.journal import Journal


class Lately:
    def __init__(self) -> None:
        self._running: dict[str, set[tuple[PartitionId, Generation]]] = {}
        self._taking: set[str] = set()
        self._changed: dict[str, float] = {}

    def notice(self, seen: Observed, journal: Journal, operators: list[str]) -> None:
        """With every look, also when nothing was measured."""
        for name in operators:
            running = {(entry.partition, entry.generation) for entry in journal.live(name)}
            if running != self._running.get(name):
                self._running[name] = running
                self.change(name, seen.at)
            if name not in self._taking and name in seen.operators and sum(seen.operators[name].rows) > 0:
                # Much is done only when there are rows for the first time, and they may come long after the start.
                self._taking.add(name)
                self.change(name, seen.at)

    def change(self, name: str, at: float) -> None:
        """It was changed, or is about to be."""
        self._changed[name] = at

    def changed(self, name: str) -> float:
        return self._changed.get(name, -math.inf)
