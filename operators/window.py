"""Tumbling windows by key: aligned, half open, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.aggregates import Spec
from operators.combine import Combine
from operators.emission import Revision
from operators.index import Slots
from operators.kernels.windows import ended_slots
from operators.ledger import RESULTS
from operators.shape import AFTER_ALL
from operators.windowing import Window
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.schema import TIMESTAMP


class TumblingWindow(Window):
    """``emit="close"``: each window once. ``"update"``: the changes of the Table of open and closed windows,
    at most once in ``period_us`` of epoch time if that is given."""

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
        period_us: int | None = None,
        on_error: str = "dead_letter",
    ) -> None:
        if size_us <= 0:
            raise Misuse("window: its size must be longer than zero")
        if not by_arrival and time_column is None:
            raise Misuse("window: the stream has no event time; give its source time=, or use by='arrival'")
        time = None if by_arrival else time_column
        super().__init__(keys, schema, time, names, aggregates, emit, period_us, name, combined, on_error=on_error)
        if self._pacer is None:
            self.carried = {**self.carried, "out": RESULTS}
        self._size = size_us
        self._offset = offset_us % size_us
        self._earliest_end = AFTER_ALL

    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        starts = self._aligned(moment, batch, self._size, self._offset, moment.watermark_before)
        self._put_aside(moment, batch, outputs, starts)
        self._fold(moment, batch, starts, outputs)

    def _fold(
        self,
        moment: Moment,
        batch: ArrowBatch,
        starts: Any,
        outputs: dict[str, ArrowBatch],
        copied: tuple[ArrowBatch, Slots] | None = None,
    ) -> None:
        record = batch.record
        found = self._find(moment, batch, starts, outputs, copied)
        if len(found.fresh):
            earliest = int(self._groups.index.times[found.fresh].min())
            self._earliest_end = min(self._earliest_end, earliest + self._size)
        if not self._updates:
            self._groups.absorb(found.slots, record)
        elif self._pacer is None:
            slots, results, kinds = self._groups.changes(found, record)
            if len(slots):
                outputs["out"] = self._rows(slots, [*results, kinds])
        elif len(found.touched):
            slots = self._groups.index.ordered(found.touched)
            before = self._results(slots)
            self._groups.absorb(found.slots, record)
            shown, buckets = ~np.isin(slots, found.fresh), self._groups.index.buckets[slots]
            after, every = self._results(slots), np.ones(len(slots), np.bool_)
            self._say(moment, Revision(buckets, self._places(slots), before, after, shown, every), outputs)

    def _close(self, moment: Moment) -> ArrowBatch | None:
        limit = self._limit(moment)
        if self._earliest_end > limit:
            return None
        index = self._groups.index
        used = slice(0, index.numbers)
        due, earliest = ended_slots(index.live[used], index.times[used], limit - self._size)
        closed = None
        if len(due) and not self._updates:
            ordered = index.ordered(due)
            closed = self._rows(ordered, self._results(ordered))
            self.ledger.add(RESULTS, "+results", len(due))
        self._groups.close(due)
        self._earliest_end = int(earliest) + self._size if len(index) else AFTER_ALL
        return closed

    def _rows(self, slots: Slots, results: list[pa.Array]) -> ArrowBatch:
        record = pa.RecordBatch.from_arrays([*self._places(slots), *results], schema=self.schema)
        return ArrowBatch(record, self._groups.index.buckets[slots])

    def _places(self, slots: Slots) -> list[pa.Array]:
        """The key and window columns."""
        starts = self._groups.index.times[slots]
        windows = [pa.array(starts).view(TIMESTAMP), pa.array(starts + self._size).view(TIMESTAMP)]
        return [*self._groups.index.keys(slots), *windows]

    def _content(self) -> pa.RecordBatch:
        slots = self._groups.index.ordered(self._groups.index.all())
        arrays = [*self._places(slots), *self._results(slots)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows_schema)

    def _derive(self) -> None:
        index = self._groups.index
        self._earliest_end = int(index.times[index.live].min()) + self._size if len(index) else AFTER_ALL
