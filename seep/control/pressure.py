"""What is kept for replay has a limit, at which the flow stands still: a Replace is not worth that for long.

Shadows that do not catch up keep what they have not saved yet from being forgotten by those before them. It may also
be the checkpoints of the others that are slow, so it is only given up when it lasts.
"""

from __future__ import annotations

from seep.control.steps import Known
from seep.model.settings import Settings
from seep.protocol.journal import Journal

PATIENCE_CHECKPOINTS = 4
"""So many checkpoints' time: shadows need one of their own."""


class Pressure:
    def __init__(self) -> None:
        self._pressing: int | None = None
        self._since_ms = 0.0

    def look(self, journal: Journal, known: Known, settings: Settings, now_ms: float) -> int | None:
        """The number of the Replace to give up: the youngest whose shadows follow one that can keep no more."""
        told = (status for partition in journal.entries if (status := known.current(partition)))
        full = {s.partition.operator for s in told if s.statistics.get("buffer_bytes", 0) >= settings.buffer_bytes}
        fed = {edge.target for edge in known.graph.edges if edge.source in full}
        pressing = next((r.number for r in reversed(journal.replaces) if r.operator in fed and r.new), None)
        if pressing != self._pressing:
            self._pressing, self._since_ms = pressing, now_ms
        return pressing if now_ms - self._since_ms > PATIENCE_CHECKPOINTS * settings.checkpoint_ms else None
