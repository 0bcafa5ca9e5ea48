"""The sample variance (n - 1): of integers from exact sums, of floats by Welford's method, which does not cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.accumulators import Accumulator, ExactTotal
from operators.collected import floats_of, present
from operators.index import Slots
from operators.kernels import spread as kernel
from seep.model.keyform import Column, column_of

_EASY = 2.0**62


class FloatVariance(Accumulator):
    """Floats in row order; decimals as the floats nearest to them."""

    apart: ClassVar[str] = "adds floats, whose result depends on the order"
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "mean": np.float64, "squares": np.float64}

    def add(self, slots: Slots, array: pa.Array) -> None:
        if pa.types.is_decimal(self.kind):
            slots, array = present(slots, array)
            array = pa.array(floats_of(array))
        super().add(slots, array)

    def fold(self, slots: Slots, column: Column) -> None:
        mean, squares, seen = (self.columns[name] for name in ("mean", "squares", "seen"))
        kernel.spread_floats(slots, column.values, column.validity, column.bit, mean, squares, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        mean, squares, seen = (self.columns[name] for name in ("mean", "squares", "seen"))
        kernel.merge_float_spreads(slots, parts["seen"], parts["mean"], parts["squares"], mean, squares, seen)

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots]
        return pa.array(self.columns["squares"][slots] / np.maximum(seen - 1, 1), mask=seen < 2)


class ExactVariance(ExactTotal):
    """Integers: (n Σx² - (Σx)²) / (n (n - 1)), of whole numbers until the last division."""

    dtypes: ClassVar[Mapping[str, Any]] = {
        **ExactTotal.dtypes,
        "square_low": np.uint64,
        "square_middle": np.uint64,
        "square_top": np.int64,
    }

    def _squares(self) -> tuple[Any, Any, Any]:
        return self.columns["square_low"], self.columns["square_middle"], self.columns["square_top"]

    def fold(self, slots: Slots, column: Column) -> None:
        super().fold(slots, column)
        self._square(slots, column, False)

    def unfold(self, slots: Slots, column: Column) -> None:
        super().unfold(slots, column)
        self._square(slots, column, True)

    def _square(self, slots: Slots, column: Column, back: bool) -> None:
        unsigned = pa.types.is_uint64(self.kind)
        place = (column.values, column.validity, column.bit)
        kernel.square_integers(slots, *place, unsigned, back, *self._squares())

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().merge(slots, saved)
        low, middle, top = (column_of(saved[name]) for name in ("square_low", "square_middle", "square_top"))
        kernel.merge_squares(slots, low.values, middle.values, top.values, *self._squares())

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots]
        missing = seen < 2
        low, high = self.columns["low"][slots], self.columns["high"][slots]
        square_low, square_middle, square_top = (column[slots] for column in self._squares())
        small = low.view(np.int64)
        # n Σx² is never less than (Σx)², so all that is computed fits when that does.
        bound = seen * square_low.astype(np.float64)
        easy = (square_middle == 0) & (square_top == 0) & (bound < _EASY) & (high == small >> np.int64(63))
        total, squares = np.where(easy, small, 0), np.where(easy, square_low.view(np.int64), 0)
        numbers = np.where(missing, 2, seen)
        result = (numbers * squares - total * total) / (numbers * (numbers - 1))
        for position in np.flatnonzero(~easy & ~missing):
            n = int(seen[position])
            sum_ = (int(high[position]) << 64) + int(low[position])
            upper = (int(square_top[position]) << 64) + int(square_middle[position])
            # Python divides integers of any size exactly.
            result[position] = (n * ((upper << 64) + int(square_low[position])) - sum_ * sum_) / (n * (n - 1))
        return pa.array(result, mask=missing)
