"""What an aggregate remembers for each key: numpy columns by slot, folded by the compiled loops.

One class for each kind of memory (exact integers, floats, extremes of numbers, of texts), not for each aggregate:
a mean is a total and its count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.index import Slots
from operators.kernels import folds, merges
from operators.room import grown
from seep.errors import Bug
from seep.model.keyform import Column, column_of

_DECIMAL_LIMIT = 10**38

Refused = dict[int, str]
"""Rows by their number, and why a user's code refused each."""


class Accumulator:
    """Columns by slot, with a count of the values seen. Subclasses fold and give results."""

    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64}
    apart: ClassVar[str] = ""
    """Why senders must not fold rows apart, as the rest of a sentence; empty when they may: then parts, merged in
    order, always give what one fold of all rows gives."""
    ordered: ClassVar[str] = ""
    """Why parts must be merged in the order of arrival, as the rest of a sentence; empty when any order will do."""
    mergeable: bool = True
    """Is there a `merge`? It may round otherwise than one fold of all rows."""
    bulky: ClassVar[bool] = False
    """Does it keep more than a few numbers, so that what is no longer wanted should go at once?"""
    fallible: ClassVar[bool] = False
    """Does it run code of a user, which may raise? Then it has a `trial` and a `commit`."""
    subtractable: ClassVar[bool] = False
    """Is there a `subtract`, which leaves exactly what would be there without these rows?"""

    def __init__(self, kind: pa.DataType, output: pa.DataType) -> None:
        self.kind = kind
        self.output = output
        self.columns: dict[str, Any] = {name: np.zeros(0, dtype) for name, dtype in self.dtypes.items()}

    @property
    def exact(self) -> bool:
        """May senders fold rows apart?"""
        return not self.apart

    @property
    def size_bytes(self) -> int:
        return int(sum(column.nbytes for column in self.columns.values()))

    def grow(self, capacity: int) -> None:
        self.columns = {name: grown(column, capacity) for name, column in self.columns.items()}

    def clear(self, slots: Slots) -> None:
        for column in self.columns.values():
            column[slots] = 0

    def add(self, slots: Slots, array: pa.Array) -> None:
        shape = column_of(array)
        if shape.width == 0:
            return  # Every value is null.
        self.fold(slots, shape)

    def fold(self, slots: Slots, column: Column) -> None:
        folds.count_rows(slots, column.validity, column.bit, self.columns["seen"])

    def trial(self, slots: Slots, array: pa.Array) -> tuple[Any, Refused]:
        """What `add` of these rows would give, without changing anything, and the rows that it would fail on."""
        raise Bug(f"{type(self).__name__} has nothing to try")

    def commit(self, tried: Any) -> None:
        """Let what a `trial` gave be true."""
        raise Bug(f"{type(self).__name__} has nothing to try")

    def subtract(self, slots: Slots, array: pa.Array) -> None:
        """Undo `add` of these rows, where the class says that it can."""
        shape = column_of(array)
        if shape.width:
            self.unfold(slots, shape)

    def unfold(self, slots: Slots, column: Column) -> None:
        raise Bug(f"{type(self).__name__} cannot take rows back")

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        """Add what another one of this kind has folded (and `save` gave), one entry for each slot."""
        held = {name: column_of(array) for name, array in saved.items()}
        self.merge_columns(slots, {name: column.values for name, column in held.items()})

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        """`merge`, by the addresses of the columns."""
        merges.merge_counts(slots, parts["seen"], self.columns["seen"])

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self.columns["seen"][slots])

    def marks(self, slots: Slots) -> pa.Array | None:
        """Something that differs, from one look to the next, exactly where the results do; None: only they tell."""
        return None

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {name: pa.array(column[slots]) for name, column in self.columns.items()}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        for name, column in self.columns.items():
            column[slots] = saved[name].to_numpy(zero_copy_only=False)

    def missing(self, slots: Slots) -> Any:
        return self.columns["seen"][slots] == 0


class Count(Accumulator):
    """Rows, or values that are not null."""

    subtractable: ClassVar[bool] = True

    def add_rows(self, slots: Slots) -> None:
        folds.count_rows(slots, 0, 0, self.columns["seen"])

    def subtract_rows(self, slots: Slots) -> None:
        folds.discount_rows(slots, 0, 0, self.columns["seen"])

    def unfold(self, slots: Slots, column: Column) -> None:
        folds.discount_rows(slots, column.validity, column.bit, self.columns["seen"])


class ExactTotal(Accumulator):
    """Integers and durations: a 128-bit total, checked when it is given out."""

    subtractable: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "low": np.uint64, "high": np.int64}

    def fold(self, slots: Slots, column: Column) -> None:
        low, high, seen = (self.columns[name] for name in ("low", "high", "seen"))
        unsigned = pa.types.is_uint64(self.kind)
        folds.total_integers(slots, column.values, column.validity, column.bit, unsigned, low, high, seen)

    def unfold(self, slots: Slots, column: Column) -> None:
        low, high, seen = (self.columns[name] for name in ("low", "high", "seen"))
        unsigned = pa.types.is_uint64(self.kind)
        folds.discount_integers(slots, column.values, column.validity, column.bit, unsigned, low, high, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        low, high, seen = (self.columns[name] for name in ("low", "high", "seen"))
        merges.merge_totals(slots, parts["seen"], parts["low"], parts["high"], low, high, seen)

    def result(self, slots: Slots) -> pa.Array:
        low, high = self.columns["low"][slots], self.columns["high"][slots]
        if pa.types.is_decimal(self.output):
            return self.decimals(slots, low, high)
        values = low.view(np.int64)
        too_big = high != values >> np.int64(63)
        if too_big.any():
            raise Overflow(int(slots[np.argmax(too_big)]), self.output)
        return pa.array(values, pa.int64(), mask=self.missing(slots)).cast(self.output)

    def decimals(self, slots: Slots, low: Any, high: Any) -> pa.Array:
        suspicious = np.flatnonzero((high >= _DECIMAL_LIMIT >> 64) | (high <= -(_DECIMAL_LIMIT >> 64) - 1))
        for position in suspicious:
            if abs((int(high[position]) << 64) + int(low[position])) >= _DECIMAL_LIMIT:
                raise Overflow(int(slots[position]), self.output)
        return decimal_array(low, high, self.missing(slots), self.output)


class DecimalTotal(ExactTotal):
    """A 192-bit total: only the value that is given out must fit 38 digits, not those on the way to it."""

    dtypes: ClassVar[Mapping[str, Any]] = {**ExactTotal.dtypes, "top": np.int64}

    def fold(self, slots: Slots, column: Column) -> None:
        low, high, top, seen = (self.columns[name] for name in ("low", "high", "top", "seen"))
        folds.total_decimals(slots, column.values, column.validity, column.bit, low, high, top, seen)

    def unfold(self, slots: Slots, column: Column) -> None:
        low, high, top, seen = (self.columns[name] for name in ("low", "high", "top", "seen"))
        folds.discount_decimals(slots, column.values, column.validity, column.bit, low, high, top, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        low, high, top, seen = (self.columns[name] for name in ("low", "high", "top", "seen"))
        merges.merge_decimal_totals(
            slots, parts["seen"], parts["low"], parts["high"], parts["top"], low, high, top, seen
        )

    def result(self, slots: Slots) -> pa.Array:
        low, high, top = (self.columns[name][slots] for name in ("low", "high", "top"))
        too_big = top != high >> np.int64(63)
        if too_big.any():
            raise Overflow(int(slots[np.argmax(too_big)]), self.output)
        return self.decimals(slots, low, high)


class ExactMean(ExactTotal):
    """Of integers: the exact total, divided once, rounded once."""

    def result(self, slots: Slots) -> pa.Array:
        low, high, seen = (self.columns[name][slots] for name in ("low", "high", "seen"))
        missing = seen == 0
        values = low.view(np.int64)
        # A float holds every integer up to 2**53, and the quotient of two such floats is rounded once.
        easy = (high == values >> np.int64(63)) & (np.abs(values) <= 2**53)
        means = np.where(easy, values, 0) / np.where(missing, 1, seen)
        for position in np.flatnonzero(~easy & ~missing):
            # Python divides integers of any size exactly.
            means[position] = ((int(high[position]) << 64) + int(low[position])) / int(seen[position])
        return pa.array(means, mask=missing)


class DecimalMean(DecimalTotal):
    """The same of decimals."""

    def result(self, slots: Slots) -> pa.Array:
        low, high, top, seen = (self.columns[name][slots] for name in ("low", "high", "top", "seen"))
        missing = seen == 0
        means = np.zeros(len(slots))
        scale = self.kind.scale
        for position in np.flatnonzero(~missing):
            middle = int(high.view(np.uint64)[position])
            total = (int(top[position]) << 128) + (middle << 64) + int(low[position])
            # A negative scale multiplies.
            means[position] = total * 10 ** max(0, -scale) / (int(seen[position]) * 10 ** max(0, scale))
        return pa.array(means, mask=missing)


class FloatTotal(Accumulator):
    """A float total, added in row order."""

    apart: ClassVar[str] = "adds floats, whose result depends on the order"
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "total": np.float64}

    def fold(self, slots: Slots, column: Column) -> None:
        total, seen = self.columns["total"], self.columns["seen"]
        folds.total_floats(slots, column.values, column.validity, column.bit, total, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        total, seen = self.columns["total"], self.columns["seen"]
        merges.merge_float_totals(slots, parts["seen"], parts["total"], total, seen)

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self.columns["total"][slots], mask=self.missing(slots))


class FloatMean(FloatTotal):
    def result(self, slots: Slots) -> pa.Array:
        missing = self.missing(slots)
        seen = np.where(missing, 1, self.columns["seen"][slots])
        return pa.array(self.columns["total"][slots] / seen, mask=missing)


class Extreme(Accumulator):
    """The least or the greatest value; of equal ones the first."""

    def __init__(self, kind: pa.DataType, greatest: bool) -> None:
        super().__init__(kind, kind)
        self.greatest = greatest


class FloatExtreme(Extreme):
    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "best": np.float64}

    def fold(self, slots: Slots, column: Column) -> None:
        best, seen = self.columns["best"], self.columns["seen"]
        folds.extreme_floats(slots, column.values, column.validity, column.bit, self.greatest, best, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        best, seen = self.columns["best"], self.columns["seen"]
        merges.merge_float_extremes(slots, parts["seen"], parts["best"], self.greatest, best, seen)

    def result(self, slots: Slots) -> pa.Array:
        # -0.0 becomes 0.0: they are equal, and which one came first must not show.
        return pa.array(self.columns["best"][slots] + 0.0, mask=self.missing(slots)).cast(self.output)


class IntegerExtreme(Extreme):
    """Everything stored as one 64-bit integer: integers, booleans, dates, times."""

    dtypes: ClassVar[Mapping[str, Any]] = {"seen": np.int64, "best": np.int64}

    def fold(self, slots: Slots, column: Column) -> None:
        best, seen = self.columns["best"], self.columns["seen"]
        unsigned = pa.types.is_uint64(self.kind)
        folds.extreme_integers(slots, column.values, column.validity, column.bit, unsigned, self.greatest, best, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        best, seen = self.columns["best"], self.columns["seen"]
        unsigned = pa.types.is_uint64(self.kind)
        merges.merge_integer_extremes(slots, parts["seen"], parts["best"], unsigned, self.greatest, best, seen)

    def result(self, slots: Slots) -> pa.Array:
        best, missing = self.columns["best"][slots], self.missing(slots)
        if pa.types.is_uint64(self.output):
            return pa.array(best.view(np.uint64), mask=missing)
        plain = pa.array(best, mask=missing)
        if pa.types.is_date(self.output):
            return plain.cast(pa.int32()).view(pa.date32())
        if pa.types.is_integer(self.output) or pa.types.is_boolean(self.output):
            return plain.cast(self.output)
        return plain.view(self.output)


class DecimalExtreme(Extreme):
    dtypes: ClassVar[Mapping[str, Any]] = ExactTotal.dtypes

    def fold(self, slots: Slots, column: Column) -> None:
        low, high, seen = (self.columns[name] for name in ("low", "high", "seen"))
        folds.extreme_decimals(slots, column.values, column.validity, column.bit, self.greatest, low, high, seen)

    def merge_columns(self, slots: Slots, parts: Mapping[str, int]) -> None:
        low, high, seen = (self.columns[name] for name in ("low", "high", "seen"))
        merges.merge_decimal_extremes(slots, parts["seen"], parts["low"], parts["high"], self.greatest, low, high, seen)

    def result(self, slots: Slots) -> pa.Array:
        low, high = self.columns["low"][slots], self.columns["high"][slots]
        return decimal_array(low, high, self.missing(slots), self.output)


class TextExtreme(Extreme):
    """Strings and bytes, ordered by their bytes (for UTF-8: by code point)."""

    def __init__(self, kind: pa.DataType, greatest: bool) -> None:
        super().__init__(kind, greatest)
        self.best: Any = np.empty(0, object)
        self._winner = np.empty(0, np.int64)

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        best = np.empty(capacity, object)
        best[: len(self.best)] = self.best
        self.best = best
        self._winner = np.full(capacity, -1, np.int64)

    def clear(self, slots: Slots) -> None:
        super().clear(slots)
        self.best[slots] = None

    def fold(self, slots: Slots, column: Column) -> None:
        winner, seen = self._winner, self.columns["seen"]
        folds.extreme_texts(
            slots, column.starts, column.values, column.validity, column.bit, self.greatest, winner, seen
        )
        present = np.unique(slots[slots >= 0])
        won = present[winner[present] >= 0]
        texts = column.array.take(pa.array(winner[won])).cast(pa.binary()).to_pylist()
        winner[won] = -1
        for slot, text in zip(won.tolist(), texts, strict=True):
            best = self.best[slot]
            if best is None or (text > best if self.greatest else text < best):
                self.best[slot] = text

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        best, seen = saved["best"], self.columns["seen"]
        self.fold(slots, column_of(best))
        # Each text was counted once just now; it stands for as many as its part has seen.
        more = pa.array(saved["seen"].to_numpy() - best.is_valid().to_numpy(zero_copy_only=False))
        merges.merge_counts(slots, column_of(more).values, seen)

    def result(self, slots: Slots) -> pa.Array:
        return pa.array(self.best[slots].tolist(), pa.binary()).cast(self.output)

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        return {**super().save(slots), "best": pa.array(self.best[slots].tolist(), pa.binary())}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        super().restore(slots, saved)
        for slot, text in zip(slots.tolist(), saved["best"].to_pylist(), strict=True):
            self.best[slot] = text


def decimal_array(low: Any, high: Any, missing: Any, kind: pa.DataType) -> pa.Array:
    words = np.empty((len(low), 2), np.uint64)
    words[:, 0] = low
    words[:, 1] = high.view(np.uint64)
    valid = np.packbits(~missing, bitorder="little")
    return pa.Array.from_buffers(kind, len(low), [pa.py_buffer(valid), pa.py_buffer(words)])


class Overflow(Exception):
    """A total does not fit its type; it never leaves the operators, which name the column and the key."""

    def __init__(self, slot: int, output: pa.DataType) -> None:
        super().__init__(f"does not fit {output}")
        self.slot = slot
