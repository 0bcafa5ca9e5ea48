"""Looks at the running job from outside, a few times a second, and keeps what the screen shows."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from demo.words import COUNT, OUT
from seep.running.job import Job

RATE_SECONDS = 1.0
HISTORY = 48


class Piece(NamedTuple):
    """A partition of the counting operator."""

    name: str
    low: int
    high: int
    worker: str


class Picture(NamedTuple):
    """The job at one moment."""

    epoch: int = 0
    """Committed by the sink."""
    words: int = 0
    """Committed: in the output for good."""
    words_per_second: float = 0.0
    history: tuple[float, ...] = ()
    """The rate of each second."""
    pieces: tuple[Piece, ...] = ()
    workers: int = 0


class Watch:
    def __init__(self) -> None:
        self.picture = Picture()
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._words = 0
        self._since = 0.0

    def look(self, job: Job) -> Picture:
        status = job.status()
        now = time.monotonic()
        if now - self._since >= RATE_SECONDS:
            self._measure(job, now)
        pieces = tuple(
            Piece(p["partition"], p["buckets"][0], p["buckets"][1], p["worker"]) for p in status["operators"][COUNT]
        )
        self.picture = Picture(
            # A partition that is just starting again knows of none; what is committed stays committed.
            max([self.picture.epoch, *(p["epoch"] or 0 for p in status["operators"][OUT])]),
            self._words,
            self._rates[-1] if self._rates else 0.0,
            tuple(self._rates),
            pieces,
            len(status["workers"]),
        )
        return self.picture

    def _measure(self, job: Job, now: float) -> None:
        """From the committed output itself: the sum of all counts as they stand."""
        words = sum(job.result()[OUT].column("n").to_pylist())
        if self._words:
            self._rates.append((words - self._words) / (now - self._since))
        self._words, self._since = words, now
