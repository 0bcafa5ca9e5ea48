"""Two Tables joined on equal primary keys: a Table again.

Both sides' rows are kept; after each epoch the result of every key that either side changed is compared with what it
was before, so at most one change of a key goes out, and none that a reader could not see. A key with a null in it never
matches. As a Table has one row for each key, a full join shows the left one of two unmatched rows with such a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.changes import change_schema, changed_rows
from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.kept_rows import KeptRows, columns_of, loaded_rows, saved_columns
from operators.ledger import RESULTS, ROWS, Accounted
from operators.pairing import pair, without_nulls
from operators.table_lookup import deletions
from seep.errors import Misuse
from seep.model.arrow import CHANGE, KEY, ArrowBatch, ArrowState
from seep.model.epoch import Moment

HOW = ("inner", "left", "right", "full")
TABLE = "pairs"
_SIDES = ("left", "right")


class _Results(NamedTuple):
    present: npt.NDArray[np.bool_]
    columns: list[pa.Array]


class TableJoin(Accounted):
    """Port 0: the left Table's changes; port 1: the right's."""

    carried: Mapping[str, str] = {"out": RESULTS}

    def __init__(
        self, keys: tuple[Sequence[str], Sequence[str]], inputs: tuple[pa.Schema, pa.Schema], how: str = "inner"
    ) -> None:
        """``inputs``: both Tables' columns, with `change`."""
        if how not in HOW:
            raise Misuse(f"how={how!r}; choose one of {', '.join(HOW)}")
        rows = [pa.schema([field for field in given if field.name != CHANGE]) for given in inputs]
        self._pairing = pair(rows[0], keys[0], rows[1], keys[1])
        self._keys = [list(given) for given in keys]
        self._how = how
        self._index = KeyIndex([self._pairing.left.field(name).type for name in keys[0]], timed=False)
        self._kept = [KeptRows(s, self._index.capacity) for s in (self._pairing.left, self._pairing.right)]
        self.schema = change_schema(self._pairing.schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(keys, change_schema(kept.schema)) for keys, kept in zip(self._keys, self._kept, strict=True)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        given = [[batch.record for port, batch in inputs if port == side and batch.rows] for side in (0, 1)]
        records = [pa.concat_batches(records) if records else None for records in given]
        found = [
            self._index.find(columns_of(record, keys), record.num_rows).slots if record else np.empty(0, np.int64)
            for record, keys in zip(records, self._keys, strict=True)
        ]
        self._grow()
        slots = self._index.ordered(np.unique(np.concatenate(found)))
        if len(slots) == 0:
            return {}
        before = self._results(slots)
        for record, rows, kept in zip(records, found, self._kept, strict=True):
            if record:
                gone = deletions(record)
                self.ledger.add(ROWS, "-applied", len(rows))
                kept.drop(rows[gone])
                kept.put(rows[~gone], record.filter(pa.array(~gone)).select(kept.schema.names))
        after = self._results(slots)
        shown = changed_rows(*before, *after)
        self.ledger.add(RESULTS, "+results", len(shown.rows))
        buckets = self._index.buckets[slots[shown.rows]]
        self._index.remove(slots[~(self._kept[0].has(slots) | self._kept[1].has(slots))])
        if len(shown.rows) == 0:
            return {}
        return {"out": ArrowBatch(pa.RecordBatch.from_arrays(shown.columns, schema=self.schema), buckets)}

    def _results(self, slots: Slots) -> _Results:
        """What the joined Table holds for these keys."""
        left, right = (kept.has(slots) for kept in self._kept)
        keys = self._index.keys(slots)
        matched = left & right & without_nulls(keys, len(slots))
        show_left = left if self._how in ("left", "full") else matched
        show_right = {"right": right, "full": matched | (right & ~left)}.get(self._how, matched)
        shown = [
            kept.take(np.where(show, slots, -1)) for kept, show in zip(self._kept, (show_left, show_right), strict=True)
        ]
        by_name = dict(zip(self._keys[0], keys, strict=True))
        columns = [
            by_name.get(name, array) for name, array in zip(shown[0].schema.names, shown[0].columns, strict=True)
        ]
        return _Results(show_left | show_right, [*columns, *columns_of(shown[1], self._pairing.right_values)])

    def _grow(self) -> None:
        for kept in self._kept:
            kept.grow(self._index.capacity)

    def content(self) -> pa.RecordBatch:
        """The joined rows."""
        results = self._results(self._index.ordered(self._index.all()))
        record = pa.RecordBatch.from_arrays(results.columns, schema=self._pairing.schema)
        return record.filter(pa.array(results.present))

    def snapshot(self, full: bool) -> ArrowState:
        def values(slots: Slots) -> dict[str, pa.Array]:
            columns: dict[str, pa.Array] = {}
            for side, kept in zip(_SIDES, self._kept, strict=True):
                columns[side] = pa.array(kept.has(slots))
                columns |= saved_columns(f"{side}.", kept.take(slots))
            return columns

        return ArrowState({TABLE: state_table(self._index, full, values)})

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE not in state.tables:
            return
        deleted, entries = split_deleted(state.tables[TABLE])
        gone = self._index.forget(deleted)
        slots = self._index.restore(entries.column(KEY)).slots
        self._grow()
        for side, kept in zip(_SIDES, self._kept, strict=True):
            kept.drop(np.union1d(gone, slots))
            there = entries.column(side)
            rows = loaded_rows(f"{side}.", entries, kept.schema).filter(there)
            kept.put(slots[there.to_numpy(zero_copy_only=False)], rows)

    def statistics(self) -> dict[str, int]:
        size = self._index.size_bytes + sum(kept.size_bytes for kept in self._kept)
        return {"keys": len(self._index), "state_bytes": size}
