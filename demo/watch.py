"""Looks at the running job from outside, a few times a second, and keeps what the screen and the picture show.

Rates and delays are taken from the committed output itself: how many lines are in it, and how old the newest of them
is. That is what somebody who waits for results would measure; no metric of the flow is trusted for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from demo.edges import Edges
from demo.load import Dial
from demo.shop import BEST, EVERYWHERE, HOURS, LOOKUP, MINUTES, SO_FAR
from seep.running.job import Job

MEASURE_SECONDS = 1.0


class Sample(NamedTuple):
    """One second of the run."""

    seconds: float
    """Since the first line was sold."""
    lines_per_second: float
    behind_seconds: float
    """The age of the newest line in the output."""
    partitions: int
    """Of the lookup."""


class Picture(NamedTuple):
    """The job at one moment."""

    lines: int = 0
    """Committed: in the output for good."""
    revenue_cents: int = 0
    behind_seconds: float = 0.0
    partitions: int = 0
    moving: bool = False
    """Is a change of their number under way?"""
    workers: int = 0
    epoch: int = 0
    """Committed by the sink."""
    best: tuple[dict[str, Any], ...] = ()
    """Items of the last five minutes, everywhere."""
    regions: tuple[dict[str, Any], ...] = ()
    """Revenue of the last hour, and an item that sells well in each."""
    stores: tuple[dict[str, Any], ...] = ()
    """Those that sold the most in the last minute."""


class Watch:
    def __init__(self, dial: Dial, edges: Edges) -> None:
        self.picture = Picture()
        self.samples: list[Sample] = []
        self._dial, self._edges = dial, edges
        self._measured = 0.0

    def look(self, job: Job) -> Picture:
        status = job.status()
        live = status["operators"][LOOKUP]
        self.picture = self.picture._replace(
            partitions=len(live) or self.picture.partitions,
            moving=status["replaces"] > 0,
            workers=len(status["workers"]),
            # A partition that is just starting again knows of none; what is committed stays committed.
            epoch=max([self.picture.epoch, *(p["epoch"] or 0 for p in status["operators"][SO_FAR])]),
        )
        if self._dial.open and time.monotonic() - self._measured >= MEASURE_SECONDS:
            self._measured = time.monotonic()
            found = self._edges.found(job)
            self._measure(self._dial.elapsed, found)
        return self.picture

    def _measure(self, seconds: float, found: Mapping[str, pa.Table]) -> None:
        so_far = found[SO_FAR]
        if not so_far.num_rows:
            return
        assert self._dial.plan is not None
        lines = pc.sum(so_far["items"]).as_py()
        newest_us = pc.max(so_far["newest"]).cast(pa.int64()).as_py()
        behind = seconds - (newest_us - self._dial.plan.start_us) / 1e6
        before = self.samples[-1] if self.samples else Sample(0.0, 0.0, 0.0, 0)
        rate = (lines - self.picture.lines) / max(seconds - before.seconds, 1e-3)
        self.samples.append(Sample(seconds, rate, behind, self.picture.partitions))
        self.picture = self.picture._replace(
            lines=lines,
            revenue_cents=pc.sum(so_far["revenue"]).as_py(),
            behind_seconds=behind,
            best=tuple(r for r in _latest(found[BEST]) if r["scope"] == EVERYWHERE),
            regions=_regions(found[HOURS], found[BEST]),
            stores=tuple(sorted(_latest(found[MINUTES]), key=lambda r: (-r["items"], r["store"]))[:3]),
        )


def _regions(hours: pa.Table, best: pa.Table) -> tuple[dict[str, Any], ...]:
    """By revenue; each with its best-selling item, leaving out the one that sells best everywhere."""
    ranked = sorted(_latest(best), key=lambda row: -row["rank"])
    usual = {row["item"] for row in ranked if row["scope"] == EVERYWHERE and row["rank"] == 1}
    items = {row["scope"]: row["item"] for row in ranked if row["item"] not in usual}
    rows = [{**row, "item": items.get(f"region {row['region']}", "")} for row in _latest(hours)]
    return tuple(sorted(rows, key=lambda row: -row["revenue"]))


def _latest(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of the window that closed last."""
    if not table.num_rows:
        return []
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["window_end"], pc.max(table["window_end"]))).to_pylist()
    return rows
