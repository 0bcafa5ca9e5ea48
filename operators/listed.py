"""Whole rows as a result: all of a group (`rows`), or its best (`top`), as a list of structs.

The rows are kept as columns; a group is a list of positions among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from operators.accumulators import Accumulator
from operators.collected import present
from operators.index import Slots
from operators.kept import Kept
from operators.lists import Lists, Words
from operators.ranks import ranks
from operators.room import grown
from seep.errors import Bug
from seep.model.keyform import column_of


class Rows(Accumulator):
    """All rows, in order of event time, then of arrival. The last ``hidden`` fields do not show."""

    apart: ClassVar[str] = "keeps every row, so folding would save nothing"
    bulky: ClassVar[bool] = True
    subtractable: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, fields: Sequence[pa.Field], hidden: int, time: str | None = None) -> None:
        shown = pa.struct(list(fields)[: len(fields) - hidden])
        super().__init__(pa.struct(fields), pa.list_(pa.field("item", shown)))
        self.time = time
        self._rows = Kept(self.kind)
        self._places = Lists()

    @property
    def size_bytes(self) -> int:
        return self._rows.size_bytes + self._places.size_bytes

    def grow(self, capacity: int) -> None:
        self._places.grow(capacity)

    def clear(self, slots: Slots) -> None:
        self._places.clear(slots)

    def add(self, slots: Slots, array: pa.Array) -> None:
        if (slots < 0).any():
            kept = np.flatnonzero(slots >= 0)
            slots, array = slots[kept], array.take(pa.array(kept))
        self._places.append(slots, self._rows.append(array))
        self._tidy()

    def subtract(self, slots: Slots, array: pa.Array) -> None:
        """Of several rows that are equal the earliest goes."""
        slots, array = present(slots, array)
        if len(slots) == 0:
            return
        touched = np.unique(slots)
        places, lengths = self._places.words(touched), self._places.lengths[touched]
        owners = np.concatenate([np.repeat(touched, lengths), slots])
        # Equal rows, and only they, have the same words; those of another group are not the same.
        words = column_of(pa.concat_arrays([self._rows.take(places), array])).array.dictionary_encode().indices
        _, same = np.unique(np.stack([owners, words.to_numpy()]), axis=1, return_inverse=True)
        held, gone = same[: len(places)], np.bincount(same[len(places) :], minlength=len(same))
        order = np.argsort(held, kind="stable")
        first = np.flatnonzero(np.diff(held[order], prepend=-1))
        number = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        leaving = np.zeros(len(places), np.bool_)
        leaving[order] = number < gone[held[order]]
        if leaving.sum() != len(slots):
            raise Bug("a row is taken back that was never added")
        self._places.clear(touched)
        self._places.append(owners[: len(places)][~leaving], places[~leaving])

    def _tidy(self) -> None:
        if self._rows.crowded:
            live = np.flatnonzero(self._places.lengths)
            places = self._places.words(live)
            owners = np.repeat(live, self._places.lengths[live])
            self._places.clear(live)
            self._places.append(owners, self._rows.keep(places))

    def merge(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        lengths = saved["rows"].value_lengths().to_numpy(zero_copy_only=False)
        self.add(np.repeat(slots, lengths), saved["rows"].flatten())

    def result(self, slots: Slots) -> pa.Array:
        places = self._places.words(slots)
        lengths = self._places.lengths[slots]
        rows = self._rows.take(places)
        if self.time is not None:
            times = np.asarray(
                rows.field(self.time).cast(pa.int64()).fill_null(-(2**63)).to_numpy(zero_copy_only=False)
            )
            order = np.lexsort((times, np.repeat(np.arange(len(slots)), lengths)))
            if (np.diff(order) < 0).any():
                rows = rows.take(pa.array(order))
        shown = self.output.value_type
        columns = [rows.field(at) for at in range(shown.num_fields)]
        # Rows without a column that shows cannot come about: a stream has at least one.
        plain = pa.StructArray.from_arrays(columns, fields=list(shown))
        return self._lists(slots, plain, self.output)

    def _lists(self, slots: Slots, values: pa.Array, kind: pa.DataType) -> pa.Array:
        offsets = self._places.offsets(slots)
        missing = self._places.lengths[slots] == 0
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
        buffers = [valid, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(kind, len(slots), buffers, children=[values])

    def save(self, slots: Slots) -> dict[str, pa.Array]:
        rows = self._rows.take(self._places.words(slots))
        return {"rows": pa.ListArray.from_arrays(pa.array(self._places.offsets(slots)), rows)}

    def restore(self, slots: Slots, saved: Mapping[str, pa.Array]) -> None:
        self.clear(slots)
        self.merge(slots, saved)


class Top(Rows):
    """The best rows by some columns; of equal ones the least by the remaining columns. Rows without one of the values
    that are compared are skipped. A group never keeps more rows than it gives."""

    apart: ClassVar[str] = "keeps whole rows, which are as wide apart as together"
    subtractable: ClassVar[bool] = False

    def __init__(
        self, fields: Sequence[pa.Field], hidden: int, limit: int, by: Sequence[str], descending: bool
    ) -> None:
        super().__init__(fields, hidden)
        self._versions = np.zeros(0, np.int64)
        self._limit = limit
        self._by = list(by)
        self._descending = descending

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._versions = grown(self._versions, capacity)

    def marks(self, slots: Slots) -> pa.Array:
        """Comparing the rows themselves would cost more than all the rest."""
        return pa.array(self._versions[slots])

    def add(self, slots: Slots, array: pa.Array) -> None:
        usable = slots >= 0
        for name in self._by:
            usable &= array.field(name).is_valid().to_numpy(zero_copy_only=False)
        chosen = np.flatnonzero(usable)
        if len(chosen) == 0:
            return
        owners, rows = slots[chosen], array.take(pa.array(chosen))
        # First among themselves, so that a long batch is never put together with what is kept.
        best = self._best(owners, rows)
        owners, rows = owners[best], rows.take(pa.array(best))
        touched = np.unique(owners)
        places = self._places.words(touched)
        lengths = self._places.lengths[touched]
        both = pa.concat_arrays([self._rows.take(places), rows])
        positions = np.concatenate([places, self._rows.append(rows)])
        all_owners = np.concatenate([np.repeat(touched, lengths), owners])
        best = self._best(all_owners, both)
        # Of equal rows the earlier one stays: a group whose rows have other positions has other rows.
        self._versions[np.unique(all_owners[best][positions[best] >= len(self._rows) - len(rows)])] += 1
        self._places.clear(touched)
        self._places.append(all_owners[best], positions[best])
        self._tidy()

    def _best(self, owners: Slots, rows: pa.Array) -> Words:
        """The rows that stay, those of an owner together and in their order."""
        sign = -1 if self._descending else 1
        keys = [owners, *(sign * ranks(rows.field(name)) for name in self._by)]
        order = np.lexsort(keys[::-1])
        same = np.ones(len(order) - 1, np.bool_)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        if same.any():
            rest = [f.name for f in self.kind if f.name not in self._by and not pa.types.is_nested(f.type)]
            order = np.lexsort([*keys, *(ranks(rows.field(name)) for name in rest)][::-1])
        sorted_owners = owners[order]
        first = np.flatnonzero(np.diff(sorted_owners, prepend=-1))
        number = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        return order[number < self._limit]
