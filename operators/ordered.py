"""The first and the last value of a key: by event time, then by arrival (a key's rows come in one final order)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.accumulators import Accumulator
from operators.index import Slots
from operators.kept import Kept
from operators.kernels.folds import extreme_times
from seep.model.keyform import column_of


class Edge(Accumulator):
    """The value with the least time, or with the greatest."""

    ordered: ClassVar[str] = "goes by arrival where times are equal, and two places do not know who was first"
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "time": np.int64, "place": np.int64}

    def __init__(self, kind: pa.DataType, last: bool) -> None:
        super().__init__(kind, kind)
        self.last = last
        self._values = Kept(kind)
        self._winner = np.empty(0, np.int64)

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self._values.size_bytes

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._winner = np.full(capacity, -1, np.int64)

    def add_timed(self, slots: Slots, array: pa.Array, times: pa.Array | None) -> None:
        """``times``: of each row; None: only the order of arrival counts. Rows without a value or time are skipped."""
        usable = np.where(array.is_valid().to_numpy(zero_copy_only=False), slots, -1)
        address = 0
        if times is not None:
            shape = column_of(times)
            if times.null_count:
                usable = np.where(times.is_valid().to_numpy(zero_copy_only=False), usable, -1)
            address = shape.values
        winner, seen, best = self._winner, self.columns["seen"], self.columns["time"]
        extreme_times(usable, address, self.last, best, seen, winner)
        met = np.unique(usable[usable >= 0])
        won = met[winner[met] >= 0]
        self.columns["place"][won] = self._values.append(array.take(pa.array(winner[won])))
        winner[won] = -1
        if self._values.crowded:
            live = np.flatnonzero(seen)
            self.columns["place"][live] = self._values.keep(self.columns["place"][live])

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self.add_timed(slots, saved["value"], saved["time"])

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots] > 0
        values = self._values.take(self.columns["place"][slots[seen]])
        return values if seen.all() else values.take(pa.array(np.cumsum(seen) - 1, mask=~seen))

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {"time": pa.array(self.columns["time"][slots]), "value": self.result(slots)}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self.clear(slots)
        self.merge(slots, saved)
