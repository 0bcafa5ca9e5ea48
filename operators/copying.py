"""Sliding windows for aggregates that cannot be merged: each row is folded into every window that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.aggregates import Spec
from operators.kernels.windows import BROKEN
from operators.ledger import ROWS
from operators.shape import Shape
from operators.window import TumblingWindow
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.ids import BEGINNING


class CopyingWindow(TumblingWindow):
    """The meaning is that of `operators.sliding.SlidingWindow`."""

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
        period_us: int | None = None,
        on_error: str = "dead_letter",
    ) -> None:
        if every_us <= 0:
            raise Misuse("window: its step must be longer than zero")
        super().__init__(
            keys,
            schema,
            time_column,
            size_us,
            0,
            names,
            aggregates,
            emit,
            by_arrival,
            name,
            period_us=period_us,
            on_error=on_error,
        )
        self._shape = Shape(size_us, every_us, offset_us % every_us)

    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        size, every, offset = self._shape
        low = self._shape.first_open(BEGINNING if self._time is None else moment.watermark_before)
        times = self._pane_times(moment, batch, outputs, self._shape, low)
        usable = np.flatnonzero(times > BROKEN)
        since = (times[usable] - offset) % every
        copies = (size - 1 - since) // every + 1
        ends = np.cumsum(copies)
        # Row by row, so that a window gets its rows in the order in which they came.
        which = np.arange(copies.sum()) - np.repeat(ends - copies, copies)
        starts = np.repeat(times[usable] - since, copies) - which * every
        still_open = starts >= low
        rows = np.repeat(usable, copies)[still_open]
        self.ledger.add(ROWS, "+copied", len(rows) - len(usable))
        if len(rows):
            self._fold(moment, batch.chosen(rows), starts[still_open], outputs, (batch, rows))
