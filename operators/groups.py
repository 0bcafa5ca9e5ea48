"""Aggregates by key (and window): the state that `Aggregate` and `TumblingWindow` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.accumulators import Accumulator, Overflow
from operators.aggregates import Spec
from operators.changes import INSERTED, UPDATED, change_column, differ
from operators.index import Found, KeyIndex, Slots, split_deleted, state_table
from operators.ledger import HELD_KEYS, HELD_ROWS, PENDING, RESULTS, ROWS, Entry, Ledger, held_rows, held_sum
from operators.memory import Memory, is_row_count
from seep.errors import Misuse
from seep.model.arrow import KEY, ArrowState
from seep.model.arrow import ROWS as PARTS
from seep.model.keyspace import check_keys
from seep.model.schema import physical

TABLE = "groups"


class Groups:
    """One entry for each key (and time), holding what its aggregates remember."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        aggregates: Mapping[str, Spec],
        timed: bool,
        time_column: str | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """``timed``: an entry is a key and a time. ``time_column``: by which rows have an order; None: by arrival."""
        schema = physical(schema)
        check_keys(schema, keys)
        if not aggregates:
            raise Misuse("no aggregate given; name at least one, such as items=count()")
        self.names = list(keys)
        self.memory = Memory(schema, aggregates, time_column)
        self.accumulators = self.memory.accumulators
        self._ledger = ledger or Ledger()
        self._rows = next((name for name, spec in aggregates.items() if is_row_count(spec)), None)
        """The aggregate that says how many rows an entry holds, if there is one."""
        self._counts_rows = any(is_row_count(s) or s.aggregate == "rows" for s in aggregates.values())
        self.index = KeyIndex([schema.field(name).type for name in keys], timed)
        self.memory.grow(self.index.capacity)

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(name, accumulator.output) for name, accumulator in self.accumulators.items()]

    @property
    def key_fields(self) -> list[pa.Field]:
        return [pa.field(name, kind) for name, kind in zip(self.names, self.index.kinds, strict=True)]

    @property
    def size_bytes(self) -> int:
        return int(self.index.size_bytes + self.memory.size_bytes)

    def find(self, record: pa.RecordBatch, times: npt.NDArray[Any] | None = None) -> Found:
        """The entries of these rows, made empty if they are new; `fold` must follow."""
        found = self.index.find([record.column(name) for name in self.names], record.num_rows, times)
        self._prepare(found)
        self._ledger.add(HELD_KEYS, "+opened", len(found.fresh))
        return found

    def absorb(self, slots: Slots, record: pa.RecordBatch) -> None:
        """Take rows, or parts of rows that senders have folded, into their entries; a slot below 0: into none."""
        taken = slots >= 0
        at = record.schema.get_field_index(PARTS)
        if at < 0:
            rows = int(np.count_nonzero(taken))
            self.memory.fold(slots, record)
        else:
            rows = int(record.column(at).to_numpy()[taken].sum())
            self.memory.merge(slots, record)
        self._ledger.add(ROWS, "-absorbed", rows)
        if self._rows is not None:
            self._ledger.add(HELD_ROWS, "+absorbed", rows)

    def _prepare(self, found: Found) -> None:
        self.memory.grow(self.index.capacity)
        if len(found.fresh):
            self.memory.clear(found.fresh)

    def close(self, slots: Slots) -> None:
        """Forget these entries: they have been told."""
        if self._rows is not None:
            self._ledger.add(HELD_ROWS, "-closed", int(self.accumulators[self._rows].columns["seen"][slots].sum()))
        self.remove(slots)

    def holds(self, state: ArrowState) -> dict[Entry, int]:
        """What is pending in a saved state: rows, as the aggregate of their number says, and entries."""
        found = {(HELD_KEYS, PENDING): held_rows(state, TABLE)}
        if self._rows is not None:
            found[HELD_ROWS, PENDING] = held_sum(state, TABLE, f"{self._rows}.seen")
        return found

    def remove(self, slots: Slots) -> None:
        """Forget these entries."""
        self._ledger.add(HELD_KEYS, "-closed", len(slots))
        self.index.remove(slots)
        self.memory.release(slots)

    def changes(self, found: Found, record: pa.RecordBatch) -> tuple[Slots, list[pa.Array], pa.Array]:
        """Take the rows in: the entries that a reader sees changed, in the order in which they are emitted,
        their results, and the column that says how."""
        slots = self.index.ordered(found.touched)
        new = np.isin(slots, found.fresh) if len(found.fresh) else np.zeros(len(slots), np.bool_)
        if self._counts_rows:
            self.absorb(found.slots, record)  # whatever the rows hold, there are more of them now
            self._ledger.add(RESULTS, "+results", len(slots))
            return slots, self.results(slots), change_column(np.where(new, INSERTED, UPDATED))
        before = self._of_each(lambda one: marks if (marks := one.marks(slots)) is not None else one.result(slots))
        self.absorb(found.slots, record)
        after = self.results(slots)
        marked = [one.marks(slots) for one in self.accumulators.values()]
        told = [result if marks is None else marks for marks, result in zip(marked, after, strict=True)]
        changed = new | differ(before, told, len(slots))
        self._ledger.add(RESULTS, "+results", int(np.count_nonzero(changed)))
        kept = pa.array(np.flatnonzero(changed))
        kinds = change_column(np.where(new[changed], INSERTED, UPDATED))
        return slots[changed], [array.take(kept) for array in after], kinds

    def results(self, slots: Slots) -> list[pa.Array]:
        return self._of_each(lambda accumulator: accumulator.result(slots))

    def _of_each(self, read: Callable[[Accumulator], pa.Array]) -> list[pa.Array]:
        arrays = []
        for name, accumulator in self.accumulators.items():
            try:
                arrays.append(read(accumulator))
            except Overflow as problem:
                raise self._overflow(name, problem) from None
        return arrays

    def _overflow(self, name: str, problem: Overflow) -> Misuse:
        key = [array[0].as_py() for array in self.index.keys(np.array([problem.slot], np.int64))]
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self.names, key, strict=True)) or "all rows"
        advice = _roomier(self.accumulators[name].output)
        return Misuse(f"{name} = {self.memory.specs[name]} {problem} for key {shown}; {advice}")

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            saved = {name: accumulator.save(slots) for name, accumulator in self.accumulators.items()}
            return {f"{name}.{part}": array for name, parts in saved.items() for part, array in parts.items()}

        return state_table(self.index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        if len(deleted):
            self.index.forget(deleted)
        found = self.index.restore(entries.column(KEY))
        self._prepare(found)
        for name, accumulator in self.accumulators.items():
            prefix = f"{name}."
            columns = {n.removeprefix(prefix): entries.column(n) for n in entries.schema.names if n.startswith(prefix)}
            if columns:
                accumulator.restore(found.slots, columns)
            else:
                accumulator.clear(found.slots)  # an aggregate that was not there when this was saved begins empty


def _roomier(kind: pa.DataType) -> str:
    """What to do when sums of this type have become too large for it."""
    if pa.types.is_integer(kind):
        return "use wide=True"
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return "use a smaller scale"
    return "cast the column to float64"
