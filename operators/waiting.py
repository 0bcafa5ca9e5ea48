"""Rows that wait for the watermark to pass their time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.kept_rows import KeptRows, loaded_rows, saved_columns
from seep.model.arrow import BUCKET, KEY, ArrowBatch
from seep.model.ids import FOREVER
from seep.model.schema import physical

_VALUE = "value."


class Waiting:
    """Rows by time. Each is known by where it stood in the input (bucket, epoch, position in the bucket), which is the
    same however the input is partitioned; they come out in the order of (bucket, time, arrival)."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = physical(schema)
        self.index = KeyIndex([pa.int64()] * 3, timed=True)
        self._kept = KeptRows(self.schema, self.index.capacity)
        self._earliest = FOREVER

    def add(self, batch: ArrowBatch, times: npt.NDArray[np.int64], epoch: int) -> None:
        """``batch``: ordered by bucket; at most one of an epoch."""
        rows = batch.rows
        starts = np.searchsorted(batch.buckets, batch.buckets)
        place = [batch.buckets.astype(np.int64), np.full(rows, epoch, np.int64), np.arange(rows) - starts]
        slots = self.index.find([pa.array(column) for column in place], rows, times).slots
        self._put(slots, batch.buckets, batch.record)

    def _put(self, slots: Slots, buckets: npt.NDArray[np.uint16], rows: pa.RecordBatch) -> None:
        self._kept.grow(self.index.capacity)
        # An entry counts where its row was sent: the index put it where its own key would be.
        self.index.buckets[slots] = buckets
        self._kept.put(slots, rows)
        if len(slots):
            self._earliest = min(self._earliest, int(self.index.times[slots].min()))

    def pop(self, watermark: int) -> tuple[ArrowBatch, npt.NDArray[np.int64]] | None:
        """The rows whose time the watermark has passed, with their times; None: there are none."""
        if self._earliest >= watermark:
            return None
        due = np.flatnonzero(self.index.live & (self.index.times < watermark)).astype(np.int64)
        _, epochs, positions = (column.to_numpy() for column in self.index.keys(due))
        due = due[np.lexsort((positions, epochs, self.index.times[due], self.index.buckets[due]))]
        batch = ArrowBatch(self._kept.take(due), self.index.buckets[due])
        times = self.index.times[due]
        self.index.remove(due)
        self._kept.drop(due)
        self._earliest = int(self.index.times[self.index.live].min()) if len(self.index) else FOREVER
        return (batch, times) if batch.rows else None

    def content(self) -> pa.RecordBatch:
        return self._kept.take(self.index.ordered(self.index.all()))

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            return saved_columns(_VALUE, self._kept.take(slots))

        return state_table(self.index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        gone = self.index.forget(deleted)
        slots = self.index.restore(entries.column(KEY)).slots
        self._kept.grow(self.index.capacity)
        self._kept.drop(np.union1d(gone, slots))
        self._put(slots, entries.column(BUCKET).to_numpy(), loaded_rows(_VALUE, entries, self.schema))

    @property
    def size_bytes(self) -> int:
        return self.index.size_bytes + self._kept.size_bytes
