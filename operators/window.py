"""Tumbling windows by key: aligned, half open, judged by the watermark of the epoch before.

A row is late when its window's end is not after that watermark; then it goes out unchanged on ``late``. A row
without a usable time is a dead letter. After the rows, windows whose end the epoch's own watermark has reached are
closed: emitted in the order (bucket, window end, key bytes) and forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.aggregates import Spec
from operators.changes import change_schema
from operators.combine import Combine, Forms, is_folded
from operators.groups import TABLE, Groups
from operators.index import Slots
from operators.kernels.windows import BROKEN, LATE, START, window_starts
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import FOREVER
from seep.model.keyform import column_of
from seep.model.schema import TIMESTAMP, physical

COUNTERS = "counters"
_LIMIT_US = FOREVER
"""Event times at or beyond this (either side of 1970) are no times."""


class TumblingWindow:
    """``emit="close"``: each window once. ``"update"``: the changes of the Table of open and closed windows."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        time_column: str | None,
        size_us: int,
        offset_us: int,
        names: tuple[str, str],
        aggregates: Mapping[str, Spec],
        emit: str = "close",
        by_arrival: bool = False,
        name: str = "window",
        combined: Combine | None = None,
    ) -> None:
        """``combined``: how the senders fold rows, where they do (`operators.combine`)."""
        if emit not in ("update", "close"):
            raise Misuse(f"window: emit={emit!r}; choose 'close' or 'update'")
        if size_us <= 0:
            raise Misuse("window: its size must be longer than zero")
        if not by_arrival and time_column is None:
            raise Misuse("window: the stream has no event time; give its source time=, or use by='arrival'")
        self._groups = Groups(keys, schema, aggregates, timed=True, time_column=None if by_arrival else time_column)
        self._forms = Forms(combined)
        self._time = None if by_arrival else time_column
        self._size = size_us
        self._offset = offset_us % size_us
        self._updates = emit == "update"
        self._tally = Tally()
        self._name = name
        self._earliest_end = FOREVER
        windows = [pa.field(name, TIMESTAMP) for name in names]
        self._rows_schema = pa.schema([*self._groups.key_fields, *windows, *self._groups.fields])
        self.schema = change_schema(self._rows_schema) if self._updates else self._rows_schema
        self._late_schema = physical(schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "late": self._late_schema, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        outputs: dict[str, ArrowBatch] = {}
        batches = [batch for _, batch in inputs if batch.rows]
        if batches:
            batch = self._forms.join(batches)
            starts, late, broken = self._starts(moment, batch)
            if late and is_folded(batch):
                self._tally.add("late", batch.buckets[starts == LATE], _weights(batch)[starts == LATE])
            elif late:
                outputs["late"] = batch.chosen(starts == LATE).by_bucket()
                self._tally.add("late", outputs["late"].buckets)
            if broken:
                outputs["errors"] = self._refuse(moment, batch)
            self._fold(batch, starts, outputs)
        closed = self._close(moment)
        if closed is not None:
            outputs["out"] = closed
        return outputs

    def _starts(self, moment: Moment, batch: ArrowBatch) -> tuple[Any, int, int]:
        result = np.empty(batch.rows, np.int64)
        if self._time is None:
            now = moment.now_ms * 1000
            result[:] = now - (now - self._offset) % self._size
            return result, 0, 0
        if is_folded(batch):
            given = batch.record.column(START).to_numpy()
            late = given + self._size <= moment.watermark_before
            return np.where(late, LATE, given), int(late.sum()), 0
        shape = column_of(batch.record.column(self._time))
        if shape.width == 0:
            result[:] = BROKEN
            return result, 0, batch.rows
        late, broken = window_starts(
            batch.rows,
            shape.values,
            shape.validity,
            shape.bit,
            self._size,
            self._offset,
            moment.watermark_before,
            _LIMIT_US,
            result,
        )
        return result, late, broken

    def _refuse(self, moment: Moment, batch: ArrowBatch) -> ArrowBatch:
        """Dead letters for the rows without a usable time; in canonical order, so that their positions are final."""
        ordered = batch.by_bucket()
        starts, _, _ = self._starts(moment, ordered)
        failures = [Failure(int(row), f"no usable time in {self._time!r}") for row in np.flatnonzero(starts == BROKEN)]
        letters = dead_letters(ordered, failures, Site(self._name, moment.epoch, self._tally))
        self._tally.add("errors", letters.buckets)
        return letters

    def _fold(self, batch: ArrowBatch, starts: Any, outputs: dict[str, ArrowBatch]) -> None:
        record, memory = batch.record, self._groups.memory
        absorb = memory.merge if is_folded(batch) else memory.fold
        found = self._groups.find(record, starts)
        if len(found.fresh):
            earliest = int(self._groups.index.times[found.fresh].min())
            self._earliest_end = min(self._earliest_end, earliest + self._size)
        if not self._updates:
            absorb(found.slots, record)
            return
        slots, results, kinds = self._groups.changes(found, absorb, record)
        if len(slots):
            outputs["out"] = self._rows(slots, [*results, kinds])

    def _close(self, moment: Moment) -> ArrowBatch | None:
        limit = moment.watermark
        if self._time is None and limit < FOREVER:
            limit = moment.now_ms * 1000
        if self._earliest_end > limit:
            return None
        index = self._groups.index
        ends = index.times + self._size
        due = np.flatnonzero(index.live & (ends <= limit)).astype(np.int64)
        closed = None
        # As a Table a window has said its last value with its last row.
        if len(due) and not self._updates:
            ordered = index.ordered(due)
            closed = self._rows(ordered, self._groups.results(ordered))
        self._groups.remove(due)
        self._earliest_end = int(ends[index.live].min()) if len(index) else FOREVER
        return closed

    def _rows(self, slots: Slots, results: list[pa.Array]) -> ArrowBatch:
        record = pa.RecordBatch.from_arrays([*self._places(slots), *results], schema=self.schema)
        return ArrowBatch(record, self._groups.index.buckets[slots])

    def _places(self, slots: Slots) -> list[pa.Array]:
        """The key and window columns."""
        starts = self._groups.index.times[slots]
        windows = [pa.array(starts).view(TIMESTAMP), pa.array(starts + self._size).view(TIMESTAMP)]
        return [*self._groups.index.keys(slots), *windows]

    def content(self) -> pa.RecordBatch:
        """The open windows, with their aggregates so far."""
        slots = self._groups.index.ordered(self._groups.index.all())
        arrays = [*self._places(slots), *self._groups.results(slots)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows_schema)

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({TABLE: self._groups.snapshot(full), COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._groups.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._groups.load(state.tables[TABLE])
            index = self._groups.index
            self._earliest_end = int(index.times[index.live].min()) + self._size if len(index) else FOREVER
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def statistics(self) -> dict[str, int]:
        gauges = {"keys": len(self._groups.index), "state_bytes": self._groups.size_bytes}
        return {**gauges, "late": 0, "errors": 0, **self._tally.totals()}


def _weights(batch: ArrowBatch) -> Any:
    weights = batch.weights
    assert weights is not None, "parts say of how many rows they are"
    return weights
