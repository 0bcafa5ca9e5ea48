"""Aggregates that need every value: median, quantiles, and the exact number of distinct values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.accumulators import Accumulator
from operators.index import KeyIndex, Slots
from operators.lists import Lists, Words, packed, unpacked
from operators.room import grown
from seep.errors import Bug

_MAGNITUDE = np.int64(2**63 - 1)
Floats = npt.NDArray[np.float64]


def floats_of(array: pa.Array) -> Floats:
    """The numbers of an array without nulls, each rounded once; one NaN, one zero."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string())  # Arrow's direct way multiplies by 0.1 and the like
    values = np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)) + 0.0
    values[np.isnan(values)] = np.nan
    return values


def sortable(values: Floats) -> Words:
    """Integers in the order of these floats; NaN is the greatest."""
    words = values.view(np.int64)
    return words ^ ((words >> np.int64(63)) & _MAGNITUDE)


def unsortable(words: Words) -> Floats:
    """The floats again."""
    return (words ^ ((words >> np.int64(63)) & _MAGNITUDE)).view(np.float64)


def between(low: Floats, high: Floats, share: Floats) -> Floats:
    """Linear interpolation; exact where both ends are equal, also infinite ones."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = high - low
        plain = low + distance * share
        # The distance of two finite numbers may be beyond all of them.
        far = np.isinf(distance) & np.isfinite(low) & np.isfinite(high)
        plain = np.where(far, low * (1 - share) + high * share, plain)
    return np.where((share == 0) | (low == high), low, plain)


def present(slots: Slots, array: pa.Array) -> tuple[Slots, pa.Array]:
    """Only the rows that have an entry and a value."""
    kept = slots >= 0
    if array.null_count:
        kept &= array.is_valid().to_numpy(zero_copy_only=False)
    if kept.all():
        return slots, array
    rows = np.flatnonzero(kept)
    return slots[rows], array.take(pa.array(rows))


class Quantile(Accumulator):
    """Every value, as an integer that sorts like it; sorted when a result is asked for."""

    apart: ClassVar[str] = "keeps every value, so folding would save nothing"
    subtractable: ClassVar[bool] = True
    bulky: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, kind: pa.DataType, quantile: float) -> None:
        super().__init__(kind, pa.float64())
        self.quantile = quantile
        self._values = Lists()

    @property
    def size_bytes(self) -> int:
        return self._values.size_bytes

    def grow(self, capacity: int) -> None:
        self._values.grow(capacity)

    def clear(self, slots: Slots) -> None:
        self._values.clear(slots)

    def add(self, slots: Slots, array: pa.Array) -> None:
        slots, values = present(slots, array)
        self._values.append(slots, sortable(floats_of(values)))

    def subtract(self, slots: Slots, array: pa.Array) -> None:
        slots, values = present(slots, array)
        self._values.take_out(slots, sortable(floats_of(values)))

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self._values.append(*unpacked(slots, saved["values"]))

    def result(self, slots: Slots) -> pa.Array:
        values = self._values
        values.sort(slots)
        lengths = values.lengths[slots]
        missing = lengths == 0
        place = self.quantile * np.maximum(lengths - 1, 0)
        lower = np.floor(place).astype(np.int64)
        upper = np.minimum(lower + 1, np.maximum(lengths - 1, 0))
        starts = np.where(missing, 0, values.starts[slots])
        low, high = (unsortable(values.arena[starts + rank]) for rank in (lower, upper))
        return pa.array(between(low, high, place - lower), mask=missing)

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {"values": self._values.save(slots)}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self._values.restore(slots, saved["values"])


class Distinct(Accumulator):
    """How many values differ: an index of (slot, value), with how often each came, so that it can be taken back."""

    apart: ClassVar[str] = "keeps every value, so folding would save nothing"
    subtractable: ClassVar[bool] = True
    bulky: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind, pa.int64())
        self._kind = pa.int64() if pa.types.is_floating(kind) else kind
        # Where other operators have the time of a window, this one has the slot.
        self._index = KeyIndex([self._kind], timed=True)
        self._counts = np.zeros(self._index.capacity, np.int64)
        self._entries = Lists()

    @property
    def size_bytes(self) -> int:
        return int(self._index.size_bytes + self._counts.nbytes + self._entries.size_bytes)

    def grow(self, capacity: int) -> None:
        self._entries.grow(capacity)

    def clear(self, slots: Slots) -> None:
        if self._entries.lengths[slots].any():
            self._index.remove(self._entries.words(slots))
        self._entries.clear(slots)

    def _keyable(self, values: pa.Array) -> pa.Array:
        return pa.array(sortable(floats_of(values))) if pa.types.is_floating(self.kind) else values

    def add(self, slots: Slots, array: pa.Array) -> None:
        slots, values = present(slots, array)
        self._enter(slots, self._keyable(values), np.ones(len(slots), np.int64))

    def _enter(self, slots: Slots, values: pa.Array, counts: Words) -> None:
        found = self._index.find([values], len(slots), slots)
        if len(self._counts) < self._index.capacity:
            self._counts = grown(self._counts, self._index.capacity)
        self._counts[found.fresh] = 0
        np.add.at(self._counts, found.slots, counts)
        self._entries.append(self._index.times[found.fresh], found.fresh)

    def subtract(self, slots: Slots, array: pa.Array) -> None:
        slots, values = present(slots, array)
        found = self._index.find([self._keyable(values)], len(slots), slots)
        if len(found.fresh):
            raise Bug("a value is taken back that was never added")
        np.subtract.at(self._counts, found.slots, 1)
        gone = found.touched[self._counts[found.touched] == 0]
        self._entries.take_out(self._index.times[gone], gone)
        self._index.remove(gone)

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        values = saved["values"].flatten()
        if (slots < 0).any():
            owners = np.repeat(slots, saved["values"].value_lengths().to_numpy(zero_copy_only=False))
            values = values.filter(pa.array(owners >= 0))
        owners, counts = unpacked(slots, saved["counts"])
        self._enter(owners, values, counts)

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self._entries.lengths[slots])

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        offsets, entries = self._entries.offsets(slots), self._entries.words(slots)
        values = pa.ListArray.from_arrays(pa.array(offsets), self._index.keys(entries)[0])
        return {"values": values, "counts": packed(offsets, self._counts[entries])}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self.clear(slots)
        self.merge(slots, saved)
