"""Totals, means and variances of floats that come out the same, bit for bit, in whatever order parts are put together.

Sessions merge when a row joins them, so in which order their floats are added depends on how the input was cut into
epochs; a total that is rounded at each step would show it. These round once, at the end. They keep 56 bytes a session
where a plain total keeps 16 (a variance 128, not 24), and adding a value takes six times as long (a variance: 18
times); so other windows, whose rows are added in one final order, go without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.accumulators import Accumulator
from operators.collected import floats_of, present
from operators.index import Slots
from operators.kernels import merges
from operators.kernels import reproducible as kernel
from operators.room import grown
from seep.model.keyform import Column, column_of


class Digits:
    """A sum for each slot, in so many digits of 32 bits below the highest that a value had."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.digits = np.zeros((0, size), np.int64)
        self.tops = np.zeros(0, np.int64)

    @property
    def size_bytes(self) -> int:
        return int(self.digits.nbytes + self.tops.nbytes)

    def grow(self, capacity: int) -> None:
        digits = np.zeros((capacity, self.size), np.int64)
        digits[: len(self.digits)] = self.digits
        self.digits, self.tops = digits, grown(self.tops, capacity)

    def clear(self, slots: Slots) -> None:
        self.digits[slots] = 0
        self.tops[slots] = 0

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array], name: str) -> None:
        tops = column_of(saved[f"{name}_top"])
        kernel.merge_digits(slots, self._read(saved[name]), tops.values, self.digits, self.tops)

    def save(self, slots: Slots, name: str) -> dict[str, pa.Array]:
        chosen = np.ascontiguousarray(self.digits[slots])
        packed = pa.Array.from_buffers(pa.binary(8 * self.size), len(chosen), [None, pa.py_buffer(chosen)])
        return {name: packed, f"{name}_top": pa.array(self.tops[slots])}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array], name: str) -> None:
        self.digits[slots] = self._read(saved[name])
        self.tops[slots] = saved[f"{name}_top"].to_numpy(zero_copy_only=False)

    def _read(self, packed: pa.Array) -> Any:
        if len(packed) == 0:
            return np.zeros((0, self.size), np.int64)
        words = np.frombuffer(packed.buffers()[1], np.int64, len(packed) * self.size, packed.offset * self.size * 8)
        return words.reshape(len(packed), self.size)


class AnyOrderTotal(Accumulator):
    """97 bits below the greatest value are kept."""

    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "special": np.float64}
    digits: ClassVar[int] = 4

    def __init__(self, kind: pa.DataType, output: pa.DataType) -> None:
        super().__init__(kind, output)
        self.sums = {"sum": Digits(self.digits)}

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + sum(one.size_bytes for one in self.sums.values())

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        for one in self.sums.values():
            one.grow(capacity)

    def clear(self, slots: Slots) -> None:
        super().clear(slots)
        for one in self.sums.values():
            one.clear(slots)

    def fold(self, slots: Slots, column: Column) -> None:
        held, place = self.sums["sum"], (column.values, column.validity, column.bit)
        kernel.add_floats(slots, *place, held.digits, held.tops, self.columns["special"], self.columns["seen"])

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        seen, special = column_of(saved["seen"]), column_of(saved["special"])
        merges.merge_float_totals(slots, seen.values, special.values, self.columns["special"], self.columns["seen"])
        for name, one in self.sums.items():
            one.merge(slots, saved, name)

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self._totals(slots), mask=self.missing(slots))

    def _totals(self, slots: Slots) -> Any:
        held, totals = self.sums["sum"], np.empty(len(slots))
        kernel.float_sums(slots, held.digits, held.tops, self.columns["special"], totals)
        return totals

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        saved = super().save(slots)
        for name, one in self.sums.items():
            saved |= one.save(slots, name)
        return saved

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().restore(slots, saved)
        for name, one in self.sums.items():
            one.restore(slots, saved, name)


class AnyOrderMean(AnyOrderTotal):
    def result(self, slots: Slots) -> pa.Array:
        missing = self.missing(slots)
        return pa.array(self._totals(slots) / np.where(missing, 1, self.columns["seen"][slots]), mask=missing)


class AnyOrderVariance(AnyOrderTotal):
    """Of the sum and the sum of squares, with so many digits that their difference has all that a float has."""

    digits: ClassVar[int] = 6

    def __init__(self, kind: pa.DataType, output: pa.DataType) -> None:
        super().__init__(kind, output)
        self.sums["squares"] = Digits(self.digits)

    def add(self, slots: Slots, array: pa.Array) -> None:
        if pa.types.is_decimal(self.kind):
            slots, array = present(slots, array)
            array = pa.array(floats_of(array))
        super().add(slots, array)

    def fold(self, slots: Slots, column: Column) -> None:
        super().fold(slots, column)
        held = self.sums["squares"]
        kernel.add_squares(slots, column.values, column.validity, column.bit, held.digits, held.tops)

    def result(self, slots: Slots) -> pa.Array:
        held, squares, results = self.sums["sum"], self.sums["squares"], np.empty(len(slots))
        seen, special = self.columns["seen"], self.columns["special"]
        kernel.float_variances(slots, held.digits, held.tops, squares.digits, squares.tops, special, seen, results)
        return pa.array(results, mask=seen[slots] < 2)
