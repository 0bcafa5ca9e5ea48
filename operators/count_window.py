"""Windows of so many rows of a key, in the order in which they arrive.

They are sliding windows over the number of the row instead of its time, made of panes alike; each key's own number of
rows closes them. A window's start and end are the times of its first and its last row. One that is not full comes out
only when the input ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from operators.accumulators import Refused
from operators.aggregates import Spec
from operators.groups import TABLE
from operators.index import Slots, split_deleted, state_table
from operators.kernels.panes import count_up
from operators.kernels.windows import BROKEN
from operators.ledger import RESULTS
from operators.panes import Made, Panes, unmergeable
from operators.room import grown
from operators.shape import AFTER_ALL, BEFORE_ALL, Shape
from operators.step import DEAD_LETTERS
from operators.windowing import Window
from seep.errors import Misuse
from seep.model.arrow import KEY, ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import FOREVER
from seep.model.schema import TIMESTAMP

COUNTS = "counts"
_FIRST, _LAST = "__first", "__last"


class RowsWindow(Window):
    """Each window once, when it has all its rows."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        time_column: str | None,
        rows: int,
        every: int,
        names: tuple[str, str],
        aggregates: Mapping[str, Spec],
        emit: str = "close",
        name: str = "window",
        on_error: str = "dead_letter",
    ) -> None:
        """``time_column`` None: a row's time is that of its epoch."""
        stuck = unmergeable(schema, aggregates) if every < rows else ""
        if stuck:
            raise Misuse(f"{stuck} cannot be merged, so every= must not be less than the number of rows")
        super().__init__(keys, schema, time_column, names, aggregates, emit, None, name, on_error=on_error)
        self._rows_wanted, self._every = rows, every
        # Windows that do not overlap are a pane each.
        self._pane = gcd(rows, every) if every < rows else every
        self._panes = Panes(self._groups, self._scratch(), Shape(rows, every, 0), whole=every >= rows)
        self._counts = np.zeros(0, np.int64)
        """Of the rows of each key, by its number."""
        self._firsts = np.zeros(0, np.int64)
        self._lasts = np.zeros(0, np.int64)
        """By pane: the times of its first and last row."""
        self._touched: tuple[Slots, Slots] = (np.empty(0, np.int64), np.empty(0, np.int64))
        """The keys that have got rows in this epoch, and how many they had before."""

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def _open(self, counts: Any) -> Any:
        """The start of the first window that so many rows do not fill."""
        return np.maximum(0, (counts - self._rows_wanted) // self._every * self._every + self._every)

    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        record, groups = batch.record, self._groups
        times = self._aligned(moment, batch, 1, 0, BEFORE_ALL)
        self._put_aside(moment, batch, outputs, times)
        keys = self._panes.owners.find([record.column(name) for name in groups.names], batch.rows)
        self._counts = _roomy(self._counts, self._panes.owners.keys.capacity)
        self._counts[keys.fresh] = 0
        self._touched = (keys.touched, self._counts[keys.touched])
        refused = Refused()
        while True:
            numbers, between = self._numbered(keys.slots, times)
            found = groups.find(record, numbers)
            more = groups.memory.trial(found.slots, record)
            if not more:
                break
            # A row that is refused has no number either: count anew without it.
            groups.remove(found.fresh)
            refused |= more
            times[list(more)] = BROKEN
            self._counts[keys.touched] = self._touched[1]
        self._refusals.say(moment, batch, refused, outputs)
        self._leave_out(batch, between)
        usable = numbers > BROKEN
        if len(found.fresh):
            self._panes.owners.add_known(found.fresh, found.slots[usable], keys.slots[usable])
        self._keep_times(found.slots[usable], times[usable], found.fresh)
        groups.absorb(found.slots, record)

    def _numbered(self, keys: Slots, times: Any) -> tuple[Any, Any]:
        """Count the rows: the pane of each, BROKEN where there is none; and which are between two windows."""
        numbers = np.full(len(times), BROKEN)
        count_up(np.where(times > BROKEN, keys, -1), self._counts, numbers)
        between = (numbers > BROKEN) & (numbers % self._every >= self._rows_wanted)
        numbers[between] = BROKEN
        usable = numbers > BROKEN
        numbers[usable] -= numbers[usable] % self._pane
        return numbers, between

    def _keep_times(self, slots: Slots, times: Any, fresh: Slots) -> None:
        self._firsts = _roomy(self._firsts, self._groups.index.capacity)
        self._lasts = _roomy(self._lasts, self._groups.index.capacity)
        self._firsts[fresh] = AFTER_ALL
        self._lasts[slots] = times  # of several rows the last one stays
        new = self._firsts[slots] == AFTER_ALL
        self._firsts[slots[new][::-1]] = times[new][::-1]

    def _close(self, moment: Moment) -> ArrowBatch | None:
        numbers, before = self._touched
        self._touched = (np.empty(0, np.int64), np.empty(0, np.int64))
        owners, lows = self._panes.owners, self._open(before)
        if moment.watermark >= FOREVER:
            starts = self._open(self._counts)
            starts[numbers] = lows
            numbers = owners.keys.all()
            made = self._panes.made(numbers, starts[numbers], np.full(len(numbers), AFTER_ALL))
            gone = self._groups.index.all()
            self._counts[numbers] = 0
        elif len(numbers):
            highs = self._open(self._counts[numbers])
            made = self._panes.made(numbers, lows, highs)
            limits = np.zeros(owners.keys.capacity, np.int64)
            limits[numbers] = highs
            panes = np.unique(made.panes)
            gone = panes[self._groups.index.times[panes] < limits[owners.numbers[panes]]]
        else:
            return None
        closed = self._emitted(made)
        self.ledger.add(RESULTS, "+results", len(made.owners))
        owners.remove(gone)
        # A key between two windows begins again from zero.
        owners.forget(numbers[self._counts[numbers] % self._every == 0])
        self._groups.close(gone)
        return closed

    def _emitted(self, made: Made) -> ArrowBatch | None:
        if len(made.owners) == 0:
            return None
        order = self._panes.order(made)
        firsts = np.searchsorted(made.windows, np.arange(len(made.owners)))
        lasts = np.searchsorted(made.windows, np.arange(len(made.owners)), side="right") - 1
        starts, ends = self._firsts[made.panes[firsts]], self._lasts[made.panes[lasts]]
        windows = [pa.array(starts).view(TIMESTAMP), pa.array(ends).view(TIMESTAMP)]
        arrays = [*self._panes.owners.keys.keys(made.owners), *windows, *self._panes.results(made)]
        taken = pa.array(order)
        record = pa.RecordBatch.from_arrays([array.take(taken) for array in arrays], schema=self._rows_schema)
        return ArrowBatch(record, self._panes.buckets(made)[order])

    # --- state ---------------------------------------------------------------------------------------------------

    def _content(self) -> pa.RecordBatch:
        numbers = self._panes.owners.keys.all()
        made = self._panes.made(numbers, self._open(self._counts[numbers]), np.full(len(numbers), AFTER_ALL))
        rows = self._emitted(made)
        return pa.RecordBatch.from_pylist([], schema=self._rows_schema) if rows is None else rows.record

    def snapshot(self, full: bool) -> ArrowState:
        self._settle()
        tables = dict(super().snapshot(full).tables)
        deleted, entries = split_deleted(tables[TABLE])
        slots = self._groups.index.restore(entries.column(KEY)).slots
        for name, times in ((_FIRST, self._firsts), (_LAST, self._lasts)):
            column = pa.concat_arrays([pa.nulls(len(deleted), pa.int64()), pa.array(times[slots], pa.int64())])
            tables[TABLE] = tables[TABLE].append_column(name, column)
        keys = self._panes.owners.keys
        tables[COUNTS] = state_table(keys, full, lambda numbers: {"count": pa.array(self._counts[numbers], pa.int64())})
        return ArrowState(tables)

    def load(self, state: ArrowState) -> None:
        super().load(state)
        if TABLE in state.tables:
            _, entries = split_deleted(state.tables[TABLE])
            slots = self._groups.index.restore(entries.column(KEY)).slots
            self._firsts = _roomy(self._firsts, self._groups.index.capacity)
            self._lasts = _roomy(self._lasts, self._groups.index.capacity)
            self._firsts[slots] = entries.column(_FIRST).to_numpy()
            self._lasts[slots] = entries.column(_LAST).to_numpy()
        if COUNTS in state.tables:
            keys = self._panes.owners.keys
            deleted, entries = split_deleted(state.tables[COUNTS])
            if len(deleted):
                keys.forget(deleted)
            numbers = keys.restore(entries.column(KEY)).slots
            self._counts = _roomy(self._counts, keys.capacity)
            self._counts[numbers] = entries.column("count").to_numpy()
            self._loaded = True

    def _derive(self) -> None:
        self._panes.owners.restart()
        self._panes.owners.keys.pending(full=True)  # they are as they were saved


def _roomy(array: Any, capacity: int) -> Any:
    return array if len(array) >= capacity else grown(array, capacity)
