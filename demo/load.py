"""How fast the tape of sales plays: the plan that says it, the tills that follow it, and the hand at the dial.

A line's event time is ``start + (t - t0) / speed-up``: when the load triples it is the speed-up that does, so a minute
of event time is always a minute of the screen. Lines are there to be read from their event time on.

The plan is a small file that only grows: each change lies a second ahead when it is written. So what was read before it
is read again with the same times, by whichever worker, and who wrote the plan knows every line that was in it.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from demo.sales import Tape
from seep.connectors.contract import Rows
from seep.model.schema import TIMESTAMP

SCHEMA = pa.schema({"store": pa.int64(), "product": pa.int64(), "cents": pa.int64(), "at": TIMESTAMP})
AHEAD_SECONDS = 1.0


@dataclass(frozen=True)
class Plan:
    """Times are microseconds; the screen's since `start_us`, the tape's since its first line."""

    start_us: int
    phases: tuple[tuple[int, int], ...]
    """(from then on, so many times as fast as in the shops), the first from 0 on."""
    end_us: int | None = None

    @cached_property
    def _since(self) -> Any:
        return np.array([since for since, _ in self.phases], np.int64)

    @cached_property
    def _speeds(self) -> Any:
        return np.array([speed for _, speed in self.phases], np.int64)

    @cached_property
    def _places(self) -> Any:
        """Of the tape, at the beginning of each phase."""
        return np.concatenate([[0], np.cumsum(np.diff(self._since) * self._speeds[:-1])])

    def place(self, elapsed_us: int) -> int:
        """Where the tape is at this time of the screen.

        >>> Plan(0, ((0, 10), (100, 30))).place(110)
        1300
        """
        phase = max(0, bisect_right(self._since, elapsed_us) - 1)
        return int(self._places[phase] + (elapsed_us - self._since[phase]) * self._speeds[phase])

    def elapsed_us(self, places: Any) -> Any:
        """When the tape is there."""
        phases = np.searchsorted(self._places, places, side="right") - 1
        return self._since[phases] + (places - self._places[phases]) // self._speeds[phases]

    # --- lines of the tape ---------------------------------------------------------------------------------------

    def released(self, tape: Tape, now_us: int) -> int:
        """Lines that have been sold by now."""
        limit_us = now_us if self.end_us is None else min(now_us, self.start_us + self.end_us - 1)
        if limit_us < self.start_us:
            return 0
        laps, rest = divmod(self.place(limit_us - self.start_us), tape.length_us)
        return laps * len(tape.times) + int(np.searchsorted(tape.times, rest, side="right"))

    def lines(self, tape: Tape) -> int:
        """In all, once the end is known."""
        assert self.end_us is not None
        return self.released(tape, self.start_us + self.end_us)

    def read(self, tape: Tape, first: int, end: int) -> pa.RecordBatch:
        """The lines from one number to another."""
        numbers = np.arange(first, end)
        laps, places = np.divmod(numbers, len(tape.times))
        at = self.start_us + self.elapsed_us(tape.times[places] + laps * tape.length_us)
        sold = tape.lines.select(["store", "product", "cents"])
        whole = len(laps) and laps[0] == laps[-1]
        sold = sold.slice(places[0], end - first) if whole else sold.take(pa.array(places))
        return pa.RecordBatch.from_arrays([*sold.columns, pa.array(at, TIMESTAMP)], schema=SCHEMA)

    # --- as a file -----------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        aside = path.with_suffix(".partial")
        aside.write_text(json.dumps([self.start_us, self.phases, self.end_us]))
        aside.replace(path)


_known: dict[Path, tuple[int, Plan]] = {}


def read_plan(path: Path) -> Plan | None:
    """As it stands now; None: nothing is sold yet."""
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    if path not in _known or _known[path][0] != changed:
        start_us, phases, end_us = json.loads(path.read_text())
        _known[path] = changed, Plan(start_us, tuple((since, speed) for since, speed in phases), end_us)
    return _known[path][1]


@dataclass(frozen=True)
class Tills:
    """`seep.connectors.contract.Source`: the tape, played by the plan."""

    tape: Tape
    plan: Path
    epoch_rows: int
    """At most, for one epoch. An epoch is handled whole: when much has piled up, one with all of it would be seconds of
    work for a slow step."""
    splits = 1

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        first, plan = position or 0, read_plan(self.plan)
        if plan is None:
            return None
        over = plan.end_us is not None and now_ms * 1000 >= plan.start_us + plan.end_us
        there = plan.released(self.tape, now_ms * 1000)
        end = until if until is not None else min(first + min(limit_rows, self.epoch_rows), there)
        if until is None and end <= first and not over:
            return None
        return Rows(plan.read(self.tape, first, end), end, over and end >= there)

    def behind(self, split: int, position: Any, now_ms: int) -> int:
        plan = read_plan(self.plan)
        return 0 if plan is None else max(0, plan.released(self.tape, now_ms * 1000) - (position or 0))


class Dial:
    """Sets the load, by writing the plan."""

    def __init__(self, tape: Tape, path: Path) -> None:
        self.tape, self.path = tape, path
        self.plan: Plan | None = None
        self.rates: list[tuple[float, float]] = []
        """(seconds since the start, lines a second from then on)."""
        path.unlink(missing_ok=True)

    def begin(self, lines_per_second: float) -> None:
        start_us = _now_us() + int(AHEAD_SECONDS * 1e6)
        self._write(Plan(start_us, ((0, self._speed(lines_per_second)),)), 0)
        self.rates.append((0.0, lines_per_second))

    def change(self, lines_per_second: float) -> None:
        plan, since = self._next()
        phases = (*plan.phases, (since, self._speed(lines_per_second)))
        self._write(Plan(plan.start_us, phases), since)
        self.rates.append((since / 1e6, lines_per_second))

    def end(self) -> None:
        plan, since = self._next()
        self._write(Plan(plan.start_us, plan.phases, since), since)

    @property
    def elapsed(self) -> float:
        """Seconds since the first line; less than 0 before it."""
        return (_now_us() - self.plan.start_us) / 1e6 if self.plan is not None else -AHEAD_SECONDS

    @property
    def open(self) -> bool:
        """Is anything sold now?"""
        end_us = self.plan.end_us if self.plan is not None else None
        return self.elapsed > 0 and (end_us is None or self.elapsed * 1e6 < end_us)

    def _next(self) -> tuple[Plan, int]:
        assert self.plan is not None
        return self.plan, _now_us() - self.plan.start_us + int(AHEAD_SECONDS * 1e6)

    def _speed(self, lines_per_second: float) -> int:
        return round(lines_per_second * self.tape.length_us / len(self.tape.times) / 1e6)

    def _write(self, plan: Plan, since_us: int) -> None:
        plan.write(self.path)
        if _now_us() >= plan.start_us + since_us:
            raise RuntimeError("this machine is too busy: a change of the load was written too late")
        self.plan = plan


def _now_us() -> int:
    return time.time_ns() // 1000
