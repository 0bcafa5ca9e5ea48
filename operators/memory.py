"""What several aggregates remember, by slot: the columns under a keyed state, and under a sender's partial results."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from operators.accumulators import Count, Refused
from operators.aggregates import Spec, evaluate
from operators.index import Slots
from operators.ordered import Edge
from seep.model.arrow import ROWS
from seep.model.schema import physical


class Memory:
    """One accumulator for each aggregate, all of the same room. Whoever owns the slots says which are new."""

    def __init__(self, schema: pa.Schema, aggregates: Mapping[str, Spec], time_column: str | None = None) -> None:
        """``time_column``: a timestamp, by which rows have an order; None: only arrival gives them one."""
        schema = physical(schema)
        self.specs = dict(aggregates)
        self.accumulators = {name: spec.accumulator(schema, time_column) for name, spec in aggregates.items()}
        self._time = time_column
        self._fields = {n: [*chain(*s.fields(schema, time_column))] for n, s in self.specs.items() if s.whole}
        self._expressions = {key: e for name, spec in self.specs.items() for key, e in spec.expressions(name).items()}
        none = np.empty(0, np.int64)
        self._parts = {name: tuple(accumulator.save(none)) for name, accumulator in self.accumulators.items()}
        self._fallible = [name for name, accumulator in self.accumulators.items() if accumulator.fallible]
        self._tried: tuple[Slots, pa.RecordBatch, dict[str, Any]] | None = None
        """What a trial without refusals gave, for the fold of the same rows."""
        self._room = 0

    @property
    def fallible(self) -> bool:
        """Does one of the aggregates run code of a user?"""
        return bool(self._fallible)

    @property
    def size_bytes(self) -> int:
        return sum(accumulator.size_bytes for accumulator in self.accumulators.values())

    def grow(self, capacity: int) -> None:
        """Make room for so many slots, if there is less."""
        if self._room < capacity:
            self._room = capacity
            for accumulator in self.accumulators.values():
                accumulator.grow(capacity)

    def clear(self, slots: Slots) -> None:
        for accumulator in self.accumulators.values():
            accumulator.clear(slots)

    def release(self, slots: Slots) -> None:
        """These slots are no longer used (or will be cleared before they are): drop what takes room."""
        for accumulator in self.accumulators.values():
            if accumulator.bulky:
                accumulator.clear(slots)

    def trial(self, slots: Slots, record: pa.RecordBatch, rows: Slots | None = None) -> Refused:
        """The rows that users' aggregates refuse; nothing changes. What one of them refuses, the others never see.
        ``rows``: of which row each is a copy, where some are: what is refused once is refused everywhere."""
        self._tried = None
        refused = Refused()
        if not self._fallible:
            return refused
        wanted = [key for name in self._fallible for key in self.specs[name].expressions(name)]
        computed = evaluate(record, {key: self._expressions[key] for key in wanted})
        values = {name: self._values(name, record, computed) for name in self._fallible}
        left = slots
        while True:
            tried, found = {}, Refused()
            for name in self._fallible:
                tried[name], failed = self.accumulators[name].trial(left, values[name])
                found = failed | found
            if not found:
                break
            refused |= found if rows is None else {int(rows[row]): error for row, error in found.items()}
            numbers = np.arange(len(slots)) if rows is None else rows
            left = np.where(np.isin(numbers, list(refused)), -1, slots)
        if not refused:
            self._tried = (slots, record, tried)
        return refused

    def fold(self, slots: Slots, record: pa.RecordBatch) -> None:
        """Add each row to its slot."""
        computed = evaluate(record, self._expressions)
        times = None if self._time is None else record.column(self._time)
        tried, self._tried = self._tried, None
        known = tried[2] if tried is not None and tried[0] is slots and tried[1] is record else {}
        for name, accumulator in self.accumulators.items():
            if name in known:
                accumulator.commit(known[name])
            elif isinstance(accumulator, Count) and self.specs[name].column is None:
                accumulator.add_rows(slots)
            elif isinstance(accumulator, Edge):
                accumulator.add_timed(slots, self._values(name, record, computed), times)
            else:
                accumulator.add(slots, self._values(name, record, computed))

    def subtract(self, slots: Slots, record: pa.RecordBatch) -> None:
        """Take each row back out of its slot; only where every accumulator is `subtractable`."""
        computed = evaluate(record, self._expressions)
        for name, accumulator in self.accumulators.items():
            if isinstance(accumulator, Count) and self.specs[name].column is None:
                accumulator.subtract_rows(slots)
            else:
                accumulator.subtract(slots, self._values(name, record, computed))

    def _values(self, name: str, record: pa.RecordBatch, computed: Mapping[str, pa.Array]) -> pa.Array:
        """What an aggregate reads of these rows: a column, or whole rows."""
        column = self.specs[name].column
        if name not in self._fields:
            return record.column(column) if isinstance(column, str) else computed[name]
        known = record.schema.names
        fields = self._fields[name]
        arrays = [record.column(f.name) if f.name in known else computed[f"{name}.{f.name}"] for f in fields]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def merge(self, slots: Slots, parts: pa.RecordBatch) -> None:
        """Add each row of partial results (`operators.combine`) to its slot."""
        for name, accumulator in self.accumulators.items():
            if is_row_count(self.specs[name]):
                accumulator.merge(slots, {"seen": parts.column(ROWS)})
            else:
                accumulator.merge(slots, {part: parts.column(part_column(name, part)) for part in self._parts[name]})

    def parts(self, slots: Slots) -> dict[str, pa.Array]:
        """These slots as columns that `merge` reads, but for the number of rows."""
        columns: dict[str, pa.Array] = {}
        for name, accumulator in self.accumulators.items():
            if not is_row_count(self.specs[name]):
                columns |= {part_column(name, part): array for part, array in accumulator.save(slots).items()}
        return columns


def part_column(name: str, part: str) -> str:
    """In a batch of partial results: the column of one thing that one aggregate remembers."""
    return f"__{name}.{part}"


def is_row_count(spec: Spec) -> bool:
    """Partial results say of how many rows they are, so `count()` needs no column of its own."""
    return spec.aggregate == "count" and spec.column is None
