"""Approximate aggregates in little memory. Both are functions of the set of values alone: rows may come in any order
and be merged in any way, and the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.accumulators import Accumulator
from operators.collected import Floats, between, floats_of, present, sortable
from operators.index import Slots
from operators.kernels import sketches as kernel
from operators.lists import Lists, Words, unpacked
from seep.errors import Bug
from seep.model.hashing import hash_rows
from seep.model.keyform import encode

_STEP_BITS = 46
"""A bucket holds the floats that agree in all but these last bits: 64 buckets between a power of two and the next."""
_ZERO = 1 << (63 - _STEP_BITS)
"""The bucket of zero; below are the negative numbers."""
_INFINITE = 0x7FF << (52 - _STEP_BITS)


class DistinctSketch(Accumulator):
    """HyperLogLog with 4,096 registers: a standard error of 1.6 %, in at most 4 KiB for each key (few values: less)."""

    bulky: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind, pa.int64())
        self._registers = Lists()

    @property
    def size_bytes(self) -> int:
        return self._registers.size_bytes

    def grow(self, capacity: int) -> None:
        self._registers.grow(capacity)

    def clear(self, slots: Slots) -> None:
        self._registers.clear(slots)

    def add(self, slots: Slots, array: pa.Array) -> None:
        slots, values = present(slots, array)
        if pa.types.is_floating(self.kind):
            values = pa.array(floats_of(values))
        words = np.empty(len(slots), np.int64)
        kernel.registers_of(hash_rows(*encode([values], len(slots))), words)
        self._enter(slots, words)

    def _enter(self, slots: Slots, words: Words) -> None:
        registers = self._registers
        registers.fill(lambda first: kernel.set_registers(first, slots, words, *registers.memory), len(slots))

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        dense = pc.equal(pc.binary_length(saved["registers"]), 8 * kernel.DENSE)
        chosen = dense.to_numpy(zero_copy_only=False)
        self._enter(*unpacked(slots[~chosen], saved["registers"].filter(pc.invert(dense))))
        owners, words = unpacked(slots[chosen], saved["registers"].filter(dense))
        ranks = words.view(np.uint8)
        places = np.flatnonzero(ranks)
        registers = places % kernel.REGISTERS
        self._enter(np.repeat(owners, 8)[places], registers << 8 | ranks[places].astype(np.int64))

    def result(self, slots: Slots) -> pa.Array:
        result = np.zeros(len(slots), np.int64)
        kernel.estimate(slots, self._registers.starts, self._registers.lengths, self._registers.arena, result)
        return pa.array(result)

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {"registers": self._registers.save(slots)}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self._registers.restore(slots, saved["registers"])


class QuantileSketch(Accumulator):
    """DDSketch over fixed buckets: each value is known to within 1/128 of itself (0.8 %), however many there are.

    The bounds of the buckets are those of the floating-point format (the first bits of a number), so finding one takes
    a shift, not a logarithm, and is the same on every machine. Infinities, NaN and zero have buckets of their own.
    """

    bulky: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64}
    subtractable: ClassVar[bool] = True

    def __init__(self, kind: pa.DataType, quantile: float) -> None:
        super().__init__(kind, pa.float64())
        self.quantile = quantile
        self._counts = Lists()

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self._counts.size_bytes

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._counts.grow(capacity)

    def clear(self, slots: Slots) -> None:
        super().clear(slots)
        self._counts.clear(slots)

    def add(self, slots: Slots, array: pa.Array) -> None:
        slots, words = self._words(slots, array)
        self._enter(slots, words)
        np.add.at(self.columns["seen"], slots, 1)

    def _words(self, slots: Slots, array: pa.Array) -> tuple[Slots, Words]:
        slots, values = present(slots, array)
        buckets = (sortable(floats_of(values)) >> _STEP_BITS) + _ZERO
        return slots, buckets << kernel.COUNT_BITS | 1

    def _enter(self, slots: Slots, words: Words) -> None:
        counts = self._counts
        counts.fill(lambda first: kernel.count_buckets(first, slots, words, *counts.memory), len(slots))

    def subtract(self, slots: Slots, array: pa.Array) -> None:
        slots, words = self._words(slots, array)
        counts = self._counts
        if kernel.discount_buckets(slots, words, counts.starts, counts.lengths, counts.arena):
            raise Bug("a value is taken back that was never added")
        np.subtract.at(self.columns["seen"], slots, 1)

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().merge(slots, {"seen": saved["seen"]})
        self._enter(*unpacked(slots, saved["counts"]))

    def result(self, slots: Slots) -> pa.Array:
        seen = self.columns["seen"][slots]
        place = self.quantile * np.maximum(seen - 1, 0)
        lower = np.floor(place).astype(np.int64)
        low, high = (self._values_at(slots, rank) for rank in (lower, np.minimum(lower + 1, np.maximum(seen - 1, 0))))
        return pa.array(between(low, high, place - lower), mask=seen == 0)

    def _values_at(self, slots: Slots, ranks: Words) -> Floats:
        counts = self._counts
        buckets = np.full(len(slots), _ZERO, np.int64)
        kernel.buckets_at(slots, ranks, counts.starts, counts.lengths, counts.arena, buckets)
        signed = buckets - _ZERO
        size = np.where(signed < 0, ~signed, signed)
        # The middle of the bucket is at most half of its width from every value in it.
        middle = ((size << _STEP_BITS) + (1 << (_STEP_BITS - 1))).view(np.float64)
        middle = np.where(size == 0, 0.0, np.where(size == _INFINITE, np.inf, middle))
        return np.where(signed < 0, -middle, middle)

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {**super().save(slots), "counts": self._counts.save(slots)}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().restore(slots, {"seen": saved["seen"]})
        self._counts.restore(slots, saved["counts"])
