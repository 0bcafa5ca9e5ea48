"""When entries are to be forgotten: a heap of what may be due, by epoch time.

What is written in one epoch expires together, so the heap has one element for each epoch. An entry written again stays
in the older element too; the state itself knows what is really due, and the heap only says when to look.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from operators.index import Slots


class Expiries:
    """Which entries may be due, and when (ms)."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Slots]] = []
        """(when, number, entries); the number keeps arrays from being compared."""
        self._number = 0

    def schedule(self, at_ms: int, slots: Slots) -> None:
        if len(slots):
            self._number += 1
            heappush(self._due, (at_ms, self._number, slots))

    def due(self, now_ms: int) -> Slots:
        """Every entry for which the time may have come, once; they are taken out."""
        found = [np.empty(0, np.int64)]
        while self._due and self._due[0][0] <= now_ms:
            found.append(heappop(self._due)[2])
        return np.unique(np.concatenate(found))

    def replace(self, slots: Slots, expires_ms: npt.NDArray[np.int64]) -> None:
        """These are all entries there are (a state was loaded), and when each expires."""
        self._due.clear()
        order = np.argsort(expires_ms, kind="stable")
        times, firsts = np.unique(expires_ms[order], return_index=True)
        for at_ms, part in zip(times.tolist(), np.split(slots[order], firsts[1:]), strict=False):
            self.schedule(at_ms, part)
