"""How many workers there should be, and which of them are no longer needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from seep.control.placement import idle
from seep.model.settings import Settings
from seep.protocol.effects import ReleaseWorker, WantWorkers
from seep.protocol.journal import SHADOW, Journal

START_WAIT = 6
"""A flow is spread over all its workers at its start. Those that do not come are waited for this many times as long as
one that is silent, from when the latest came: then it starts with those there are."""


class Pool:
    def __init__(self, workers: int, settings: Settings) -> None:
        self.workers = workers
        self.settings = settings
        self.want = -1
        self.idle_since: dict[str, float] = {}
        self.short_ms: float | None = None
        """Since when workers are wanted that do not come, and none is idle."""
        self.there = 0
        self.started = False
        self.met, self.met_ms = 0, 0.0
        """Workers at the start, and when the latest of them came."""
        self.released: set[str] = set()
        """They may be heard of until they have ended; nothing is placed on them any more."""

    def look(self, journal: Journal, heard: Iterable[str], now_ms: float) -> Iterator[WantWorkers | ReleaseWorker]:
        """Ask for those that are missing; let go of those beyond that, if they have had nothing to do for a while, the
        longest idle first."""
        shadows = sum(e.role == SHADOW and not e.worker for e in journal.entries.values())
        used = {e.worker for e in journal.entries.values() if e.worker}
        want = max(self.workers, len(used)) + self.settings.spare_workers + shadows
        if want != self.want:
            self.want = want
            yield WantWorkers(want)
        there = sorted(heard)
        self.idle_since = {w: self.idle_since.get(w, now_ms) for w in idle(journal, there)}
        self.there = len(there)
        self.started = bool(used)
        short = self.there < want and not (self.started and self.idle_since)
        self.short_ms = (now_ms if self.short_ms is None else self.short_ms) if short else None
        resting = [w for w, since in self.idle_since.items() if now_ms - since >= self.settings.release_ms]
        resting.sort(key=self.idle_since.__getitem__)
        for worker in resting[: max(0, len(there) - want)]:
            self.released.add(worker)
            yield ReleaseWorker(worker)

    def shortage(self, now_ms: float) -> str:
        """Why nothing more can be started on a slot of its own; empty: it can."""
        waited_ms = now_ms - self.short_ms if self.short_ms is not None else 0.0
        if waited_ms <= self.settings.suspect_ms:
            return ""
        what = "none is idle" if self.started else "the flow waits for more before it starts"
        return f"{self.there} of {self.want} workers wanted are there, for {waited_ms / 1000:.0f} s; {what}"

    def starts_later(self, there: int, now_ms: float) -> bool:
        """Is it better to wait for more workers before anything is placed?"""
        if there > self.met:
            self.met, self.met_ms = there, now_ms
        return there < self.workers and (not there or now_ms - self.met_ms < START_WAIT * self.settings.suspect_ms)
