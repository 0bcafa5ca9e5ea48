"""A Stream's rows joined with the row that a Table has for their key now.

The Table's changes of an epoch are applied first, so a row meets the Table as it is at the end of the row's epoch.
A key with a null in it never matches. A broadcast Table is held whole by every partition, so the stream's rows stay
where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.changes import change_schema
from operators.kept_rows import columns_of
from operators.kernels.folds import last_rows
from operators.keyed_rows import HoldsRows, KeyedRows
from operators.ledger import ROWS
from operators.pairing import pair, without_nulls
from seep.errors import Misuse
from seep.model.arrow import CHANGE, DELETE, REPLICATED, ArrowBatch
from seep.model.epoch import Moment


class TableLookup(HoldsRows):
    """Port 0: the Table's changes; every other port: the stream's rows."""

    carried: Mapping[str, str] = {"out": ROWS}

    def __init__(
        self,
        keys: tuple[Sequence[str], Sequence[str]],
        inputs: tuple[pa.Schema, pa.Schema],
        how: str = "inner",
        replicated: bool = False,
        changes: bool = True,
        wanted: Collection[str] | None = None,
    ) -> None:
        """``keys`` and ``inputs``: of the Table (with its column `change`) and of the stream. ``replicated``: every
        partition gets the whole Table. Not ``changes``: it is a stream's rows, of which the latest of a key counts.
        ``wanted``: of the columns that go out, those that are read; others do not come in."""
        if how not in ("inner", "left"):
            raise Misuse(f"how={how!r}; choose 'inner' or 'left'")
        rows = pa.schema([field for field in inputs[0] if not changes or field.name != CHANGE])
        self.pairing = pair(inputs[1], keys[1], rows, keys[0])
        if wanted is not None:
            self.pairing = self.pairing.narrowed(wanted, keys[1], keys[0])
        self._stream_keys = list(keys[1])
        self._inner = how == "inner"
        self._changes = changes
        super().__init__(KeyedRows(keys[0], self.pairing.right), replicated)
        self.schema = self.pairing.schema

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        rows = change_schema(self._table.schema) if self._changes else self._table.schema
        return [(self._table.keys, rows), (self._stream_keys, self.pairing.left)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        changes = [batch.record for port, batch in inputs if port == 0 and batch.rows]
        if changes:
            self._apply(pa.concat_batches(changes))
        batches = [batch for port, batch in inputs if port != 0 and batch.rows]
        return self._join(ArrowBatch.concat(batches).by_bucket()) if batches else {}

    def _apply(self, changes: pa.RecordBatch) -> None:
        found = self._table.find(changes)
        if not self._saved_as.startswith(REPLICATED):
            self.ledger.add(ROWS, "-applied", len(found.slots))
        if not self._changes:
            last = np.empty(self._table.index.capacity, np.int64)
            last_rows(found.slots, last)
            self._table.put(found.touched, changes.take(pa.array(last[found.touched])))
            return
        slots = found.slots
        gone = deletions(changes)
        self._table.remove(slots[gone])
        self._table.put(slots[~gone], changes.filter(pa.array(~gone)).select(self._table.schema.names))

    def _join(self, batch: ArrowBatch) -> dict[str, ArrowBatch]:
        keys = columns_of(batch.record, self._stream_keys)
        slots = np.where(without_nulls(keys, batch.rows), self._table.index.look(keys, batch.rows), -1)
        if self._inner:
            found = np.flatnonzero(slots >= 0)
            self.ledger.add(ROWS, "-unmatched", int(np.count_nonzero(slots < 0)))
            if len(found) < batch.rows:
                batch, slots = batch.chosen(found), slots[found]
        if batch.rows == 0:
            return {}
        rows = self._table.kept.take(slots)
        columns = [*batch.record.columns, *columns_of(rows, self.pairing.right_values)]
        return {"out": ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), batch.buckets)}


def deletions(changes: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which of these changes delete their key."""
    return np.asarray(pc.equal(changes.column(CHANGE), DELETE).to_numpy(zero_copy_only=False))
