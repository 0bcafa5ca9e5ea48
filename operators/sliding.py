"""Sliding windows by key, made of panes: a row is folded once, into the pane that it falls into, and a window's panes
are merged when it closes, or when it has changed.

A pane is as long as the greatest common divisor of the window's size and of the step from one window to the next, so
every window is a whole number of panes. It is kept until the last window that it belongs to has closed. Windows may be
further apart than they are long: rows between them belong to no window and count as filtered, never as late (no
window has missed them).

Aggregates that cannot be merged are folded row by row into each window (`operators.copying`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.aggregates import Spec
from operators.combine import Combine
from operators.emission import Revision
from operators.index import Slots
from operators.ledger import RESULTS
from operators.panes import Made, Panes
from operators.shape import AFTER_ALL, Shape
from operators.windowing import Window
from seep.errors import Misuse
from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING
from seep.model.schema import TIMESTAMP

CLOSED = "closed"
"""The state table that says up to when windows have been closed."""


class SlidingWindow(Window):
    """``emit="close"``: each window once. ``"update"``: the changes of the Table of open and closed windows."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        time_column: str | None,
        size_us: int,
        every_us: int,
        offset_us: int,
        names: tuple[str, str],
        aggregates: Mapping[str, Spec],
        emit: str = "close",
        by_arrival: bool = False,
        name: str = "window",
        combined: Combine | None = None,
        period_us: int | None = None,
        on_error: str = "dead_letter",
    ) -> None:
        if size_us <= 0 or every_us <= 0:
            raise Misuse("window: its size and step must be longer than zero")
        if not by_arrival and time_column is None:
            raise Misuse("window: the stream has no event time; give its source time=, or use by='arrival'")
        time = None if by_arrival else time_column
        super().__init__(keys, schema, time, names, aggregates, emit, period_us, name, combined, on_error=on_error)
        self._shape = Shape(size_us, every_us, offset_us % every_us)
        self._size = size_us
        self._panes = Panes(self._groups, self._scratch(), self._shape)
        self._closed = BEGINNING
        self._next_close = BEGINNING
        """No window ends before this: there is nothing to look for."""

    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        if self._time is not None:
            self._closed = moment.watermark_before
        low = self._shape.first_open(self._closed)
        times = self._pane_times(moment, batch, outputs, self._shape, low)
        record = batch.record
        found = self._find(moment, batch, times, outputs)
        if len(found.fresh):
            self._panes.owners.add(found.fresh)
            earliest = int(self._groups.index.times[found.fresh].min())
            self._next_close = min(self._next_close, max(low, self._shape.first_open(earliest)) + self._size)
        if not self._updates:
            self._groups.absorb(found.slots, record)
        elif len(found.touched):
            changed = self._panes.touched(found.touched, low)
            known = changed.without(self._panes.marks(found.fresh))
            needed = self._pacer is not None or not self._counts_rows
            before = self._panes.results(known) if needed else None
            self._groups.absorb(found.slots, record)
            order = self._panes.order(changed)
            taken = pa.array(order)
            revision = Revision(
                self._panes.buckets(changed)[order],
                [place.take(taken) for place in self._places(changed.owners, changed.starts)],
                None if before is None else [array.take(taken) for array in before],
                [array.take(taken) for array in self._panes.results(changed)],
                known.filled()[order],
                np.ones(len(order), np.bool_),
            )
            self._say(moment, revision, outputs)

    def _close(self, moment: Moment) -> ArrowBatch | None:
        limit, closed = self._limit(moment), None
        if self._next_close <= limit:
            low, high = self._shape.first_open(self._closed), self._shape.first_open(limit)
            if not self._updates:
                made = self._panes.all(low, high)
                self.ledger.add(RESULTS, "+results", len(made.owners))
                closed = self._rows(made)
            self._panes.drop_before(high)
            times = self._groups.index.times[self._groups.index.live]
            earliest = max(high, self._shape.first_open(int(times.min()))) if len(times) else AFTER_ALL - self._size
            self._next_close = earliest + self._size
        self._closed = limit
        return closed

    def _rows(self, made: Made) -> ArrowBatch | None:
        if len(made.owners) == 0:
            return None
        order = self._panes.order(made)
        taken = pa.array(order)
        arrays = [*self._places(made.owners, made.starts), *self._panes.results(made)]
        record = pa.RecordBatch.from_arrays([array.take(taken) for array in arrays], schema=self._rows_schema)
        return ArrowBatch(record, self._panes.buckets(made)[order])

    def _places(self, owners: Slots, starts: Slots) -> list[pa.Array]:
        windows = [pa.array(starts).view(TIMESTAMP), pa.array(starts + self._size).view(TIMESTAMP)]
        return [*self._panes.owners.keys.keys(owners), *windows]

    # --- state ---------------------------------------------------------------------------------------------------

    def _content(self) -> pa.RecordBatch:
        rows = self._rows(self._panes.all(self._shape.first_open(self._closed), AFTER_ALL))
        return pa.RecordBatch.from_pylist([], schema=self._rows_schema) if rows is None else rows.record

    def snapshot(self, full: bool) -> ArrowState:
        state = super().snapshot(full)
        index = self._groups.index
        buckets = np.unique(index.buckets[index.live])
        columns = {
            BUCKET: pa.array(buckets, pa.uint16()),
            KEY: pa.array([bucket.tobytes() for bucket in buckets], pa.binary()),
            "until": pa.array(np.full(len(buckets), self._closed, np.int64)),
        }
        if not full:
            columns[DELETED] = pa.array(np.zeros(len(buckets), np.bool_))
        return ArrowState({**state.tables, CLOSED: pa.RecordBatch.from_pydict(columns)})

    def load(self, state: ArrowState) -> None:
        super().load(state)
        if CLOSED in state.tables and state.tables[CLOSED].num_rows:
            # Where nothing is open any more the number is an old one, and does not matter.
            self._closed = max(self._closed, int(state.tables[CLOSED].column("until").to_numpy().max()))

    def _derive(self) -> None:
        self._panes.owners.restart()
        self._next_close = BEGINNING
