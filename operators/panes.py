"""Windows put together from panes: entries of a timed state, merged by whole columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.accumulators import Overflow
from operators.aggregates import Spec
from operators.groups import Groups
from operators.index import Slots
from operators.memory import Memory
from operators.owners import Owners
from operators.shape import AFTER_ALL, Shape
from seep.model.schema import physical

Flags = npt.NDArray[np.bool_]


class Made(NamedTuple):
    """Windows and their panes, which are in order of time."""

    owners: Slots
    """The number of each window's key."""
    starts: Slots
    windows: Slots
    """For each pane, the window that it is in ..."""
    panes: Slots
    """... and its slot."""

    def without(self, marked: Flags) -> Made:
        """The same windows without the panes that are marked (by slot)."""
        kept = ~marked[self.panes]
        return self._replace(windows=self.windows[kept], panes=self.panes[kept])

    def filled(self) -> Flags:
        """Which windows have a pane at all?"""
        result = np.zeros(len(self.owners), np.bool_)
        result[self.windows] = True
        return result


class Panes:
    """The windows of this shape over the panes in ``groups``."""

    def __init__(self, groups: Groups, scratch: Memory, shape: Shape, whole: bool = False) -> None:
        """``scratch``: where windows are put together. ``whole``: a window is a single pane."""
        self._groups = groups
        self._whole = whole
        self.owners = Owners(groups.index)
        self._shape = shape
        self._scratch = scratch

    def touched(self, panes: Slots, low: int) -> Made:
        """The windows from ``low`` on to which one of these panes belongs."""
        marked = self.marks(panes)
        numbers = np.unique(self.owners.numbers[panes])
        return self.made(numbers, np.full(len(numbers), low), np.full(len(numbers), AFTER_ALL), marked)

    def marks(self, panes: Slots) -> Flags:
        marked = np.zeros(self._groups.index.capacity, np.bool_)
        marked[panes] = True
        return marked

    def all(self, low: int, high: int) -> Made:
        """The windows of all keys that start from ``low`` on and before ``high``."""
        numbers = self.owners.keys.all()
        return self.made(numbers, np.full(len(numbers), low), np.full(len(numbers), high))

    def made(self, numbers: Slots, lows: Any, highs: Any, marked: Any = None) -> Made:
        marks = np.empty(0, np.bool_) if marked is None else marked
        owners, starts, bounds, panes = self.owners.windows(numbers, lows, highs, *self._shape, marks)
        return Made(owners, starts, np.repeat(np.arange(len(owners)), np.diff(bounds)), panes)

    def order(self, made: Made) -> Any:
        return self.owners.order(made.owners, made.starts)

    def buckets(self, made: Made) -> npt.NDArray[np.uint16]:
        return self.owners.keys.buckets[made.owners]

    def results(self, made: Made) -> list[pa.Array]:
        """The aggregates of these windows."""
        if self._whole:
            return self._groups.results(made.panes)
        slots = np.arange(len(made.owners))
        self._scratch.grow(1 << len(slots).bit_length())
        self._scratch.clear(slots)
        arrays = []
        for name, accumulator in self._scratch.accumulators.items():
            accumulator.merge(made.windows, self._groups.accumulators[name].save(made.panes))
            try:
                arrays.append(accumulator.result(slots))
            except Overflow as problem:
                problem.slot = int(made.panes[np.searchsorted(made.windows, problem.slot)])
                raise self._groups._overflow(name, problem) from None
        return arrays

    def drop_before(self, time: int) -> None:
        """Panes that start before this belong to no open window any more."""
        index = self._groups.index
        gone = np.flatnonzero(index.live & (index.times < time))
        self.owners.forget(self.owners.remove(gone))
        self._groups.close(gone)


def unmergeable(schema: pa.Schema, aggregates: Mapping[str, Spec]) -> str:
    """The first of these aggregates whose parts cannot be merged; empty when all can."""
    for name, spec in aggregates.items():
        accumulator = spec.accumulator(physical(schema))
        if not getattr(accumulator, "mergeable", accumulator.exact):
            return f"{name} = {spec}"
    return ""
