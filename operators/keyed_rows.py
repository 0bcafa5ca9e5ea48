"""One row for each key: the state of every operator that holds a Table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from operators.index import Found, KeyIndex, Slots, split_deleted, state_table
from operators.kept_rows import KeptRows, columns_of, loaded_rows, saved_columns
from operators.ledger import Accounted
from seep.model.arrow import KEY, REPLICATED, ArrowState
from seep.model.keyspace import check_keys
from seep.model.schema import physical

_THERE = "there"
_VALUE = "value."


TABLE = "rows"
"""What the state table of such an operator is called."""


class KeyedRows:
    """A key index, and the row of each of its entries."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema, sparse: bool = False) -> None:
        """``sparse``: an entry may be without a row."""
        self.schema = physical(schema)
        check_keys(self.schema, keys)
        self.keys = list(keys)
        self.index = KeyIndex([self.schema.field(name).type for name in keys], timed=False)
        self.kept = KeptRows(self.schema, self.index.capacity)
        self._sparse = sparse

    def find(self, record: pa.RecordBatch) -> Found:
        """The entries of these rows, made if need be; whoever is new must get a row, or be removed."""
        found = self.index.find(columns_of(record, self.keys), record.num_rows)
        self.kept.grow(self.index.capacity)
        return found

    def put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        self.kept.put(slots, rows)

    def remove(self, slots: Slots) -> None:
        self.index.remove(slots)
        self.kept.drop(slots)

    def content(self) -> pa.RecordBatch:
        """The row of every key."""
        return self.kept.take(self.index.ordered(self.index.all()))

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            there = {_THERE: pa.array(self.kept.has(slots))} if self._sparse else {}
            return {**there, **saved_columns(_VALUE, self.kept.take(slots))}

        return state_table(self.index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        gone = self.index.forget(deleted)
        slots = self.index.restore(entries.column(KEY)).slots
        self.kept.grow(self.index.capacity)
        self.kept.drop(np.union1d(gone, slots))
        if self._sparse:
            there = entries.column(_THERE)
            entries, slots = entries.filter(there), slots[there.to_numpy(zero_copy_only=False)]
        self.kept.put(slots, loaded_rows(_VALUE, entries, self.schema))

    def statistics(self) -> dict[str, int]:
        return {"keys": len(self.index), "state_bytes": self.index.size_bytes + self.kept.size_bytes}


class HoldsRows(Accounted):
    """What operators share whose whole state is one such Table."""

    def __init__(self, table: KeyedRows, replicated: bool = False) -> None:
        """``replicated``: every partition holds all of it."""
        self._table = table
        self._saved_as = REPLICATED + TABLE if replicated else TABLE

    def content(self) -> pa.RecordBatch:
        """The row of every key."""
        return self._table.content()

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({self._saved_as: self._table.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._table.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if self._saved_as in state.tables:
            self._table.load(state.tables[self._saved_as])

    def statistics(self) -> dict[str, int]:
        return self._table.statistics()
