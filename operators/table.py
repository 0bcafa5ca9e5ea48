"""The latest row of each key as a Table.

Of an epoch's rows the last of each key counts; it is compared with the one that is kept, so that only what a reader
could see goes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from operators.aggregates import evaluate
from operators.changes import DELETED, INSERTED, NONE, UPDATED, change_column, change_schema, differ
from operators.index import Slots
from operators.kernels.folds import last_rows
from operators.keyed_rows import HoldsRows, KeyedRows
from operators.ledger import ROWS
from operators.room import grown
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment

GONE = "__gone"
"""Marks, on the way to a Table that is made of another, the rows that delete their key."""


class LatestTable(HoldsRows):
    """Latest by arrival. ``deleted``: a row for which this holds deletes its key. Out come the changes."""

    carried: Mapping[str, str] = {"out": ROWS}

    def __init__(self, keys: Sequence[str], schema: pa.Schema, deleted: pl.Expr | None = None) -> None:
        super().__init__(KeyedRows(keys, schema))
        self._deleted = deleted
        check_deleted(self._table.schema, deleted)
        self._last = np.zeros(0, np.int64)
        self.schema = change_schema(self._table.schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        record = ArrowBatch.concat(batches).record
        found = self._table.find(record)
        if len(self._last) < self._table.index.capacity:
            self._last = grown(self._last, self._table.index.capacity)
        slots = self._table.index.ordered(found.touched)
        new = np.isin(slots, found.fresh)
        last_rows(found.slots, self._last)
        latest = record.take(pa.array(self._last[slots]))
        gone = self._gone(latest)
        kinds = np.where(gone, np.where(new, NONE, DELETED), np.where(new, INSERTED, UPDATED))
        known = np.flatnonzero(~new)
        old = self._table.kept.take(slots[known])
        same = known[~differ(old.columns, latest.take(pa.array(known)).columns, len(known))]
        kinds[same] = np.where(gone[same], DELETED, NONE)
        self.ledger.add(ROWS, "-superseded", record.num_rows - len(found.touched))
        self.ledger.add(ROWS, "-unchanged", int(np.count_nonzero(kinds == NONE)))
        output = self._output(slots, kinds, old, known, latest)
        written = (kinds == INSERTED) | (kinds == UPDATED)
        self._table.remove(slots[gone])
        self._table.put(slots[written], latest.take(pa.array(np.flatnonzero(written))))
        return output

    def _gone(self, latest: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        if self._deleted is None:
            return np.zeros(latest.num_rows, np.bool_)
        flags = evaluate(latest, {"deleted": self._deleted})["deleted"]
        return np.array(flags.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

    def _output(
        self,
        slots: Slots,
        kinds: npt.NDArray[np.int64],
        old: pa.RecordBatch,
        known: npt.NDArray[np.int64],
        latest: pa.RecordBatch,
    ) -> dict[str, ArrowBatch]:
        """A delete carries the old values, everything else the new ones."""
        changed = np.flatnonzero(kinds != NONE)
        if len(changed) == 0:
            return {}
        source = np.arange(len(slots))
        source[known] = np.where(kinds[known] == DELETED, len(slots) + np.arange(len(known)), known)
        both = pa.concat_batches([latest, old])
        rows = both.take(pa.array(source[changed]))
        columns = [*rows.columns, change_column(kinds[changed])]
        record = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return {"out": ArrowBatch(record, self._table.index.buckets[slots[changed]])}


def check_deleted(schema: pa.Schema, deleted: pl.Expr | None) -> None:
    """Refuse an expression that does not say whether a row deletes its key."""
    if deleted is not None:
        kind = evaluate(pa.RecordBatch.from_pylist([], schema=schema), {"deleted": deleted})["deleted"].type
        if not pa.types.is_boolean(kind):
            raise Misuse(f"table: deleted= gives a {kind}; it must be true or false")
