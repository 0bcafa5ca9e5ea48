"""Which workers are there, by what is heard of them.

A worker reports between two pieces of work. While its loop is inside one (a slow function over a large epoch), a thread
beside it says `Busy`. That keeps the worker, up to `stuck_ms`; a process that was stopped or is cut off says nothing at
all, and is lost after `suspect_ms`, whatever it was doing.

`Busy` begins no life: of a worker that was given up it says only that it is still inside what it was given up for, so
nothing is placed there until its loop reports.
"""

from __future__ import annotations

from collections.abc import Callable

from seep.model.ids import NOWHERE, PartitionId, Place
from seep.model.settings import Settings
from seep.protocol.messages import Busy

NOTHING_YET = "what it was told to start"


class Attendance:
    def __init__(self, settings: Settings, shown: Callable[[PartitionId], str] = str) -> None:
        """`shown`: how users know a partition."""
        self.settings = settings
        self._shown = shown
        self.heard: dict[str, float] = {}
        """When each worker that counts was last heard of (ms)."""
        self.busy: dict[str, Busy] = {}
        """Those whose loop is inside one piece of work, by their last word."""
        self.places: dict[str, Place] = {}
        """Where those that count run, if they have said so."""

    def hear(self, worker: str, now_ms: float, place: Place = NOWHERE) -> None:
        """Its loop has spoken."""
        self.heard[worker] = now_ms
        if place != NOWHERE:
            self.places[worker] = place
        self.busy.pop(worker, None)

    def hear_busy(self, said: Busy, now_ms: float) -> str:
        """It lives, its loop is at work. Not empty: something that whoever looks after the flow should know."""
        before = self.busy.get(said.worker)
        if said.worker not in self.heard or said.busy_ms > self.settings.stuck_ms:
            return ""
        self.heard[said.worker] = now_ms
        self.busy[said.worker] = said
        long_ms = self.settings.suspect_ms
        known = before is not None and before.busy_ms > long_ms
        if said.busy_ms <= long_ms or known:
            return ""
        return f"{self._work(said)} goes on for {said.busy_ms / 1000:.1f} s"

    def lose(self, worker: str) -> bool:
        """It is gone; did it count?"""
        self.busy.pop(worker, None)
        self.places.pop(worker, None)
        return self.heard.pop(worker, None) is not None

    def excuse(self, now_ms: float) -> None:
        """We were the ones asleep: nobody else's silence counts."""
        self.heard = dict.fromkeys(self.heard, now_ms)

    def lose_silent(self, now_ms: float) -> list[str]:
        """Give up those that were silent for too long; what to say of each."""
        notes = []
        for worker in [w for w, ms in self.heard.items() if now_ms - ms > self.settings.suspect_ms]:
            said = self.busy.get(worker)
            inside = f", inside {self._work(said)}" if said is not None else ""
            notes.append(f"worker {worker} silent for {self.settings.suspect_ms:.0f} ms{inside}")
            self.lose(worker)
        return notes

    def at_hand(self) -> list[str]:
        """Where to place something: at those who would begin with it at once, if there are any."""
        return sorted(self.heard.keys() - self.busy.keys()) or sorted(self.heard)

    def _work(self, said: Busy) -> str:
        return f"the epoch after {said.epoch} of {self._shown(said.partition)}" if said.partition else NOTHING_YET
