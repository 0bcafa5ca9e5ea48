"""A Table's changes as rows that are added and taken back.

A change says the new row only. Whoever groups a Table by other columns must know the old one too: it lives here, by
primary key, and goes out with the sign -1 before the new one goes out with +1. Only the columns that are read
further on are kept; a change that leaves those as they were goes no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.changes import change_schema, differ
from operators.keyed_rows import HoldsRows, KeyedRows
from operators.ledger import RESULTS, ROWS
from operators.table_lookup import deletions
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment

SIGN = "__sign"
"""The last column of signed rows (int8): 1 for a row that comes, -1 for one that goes."""


def signed_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, pa.field(SIGN, pa.int8())])


class Retract(HoldsRows):
    """In come the changes of a Table with the primary key ``keys``, out go signed rows of the columns ``rows``."""

    carried: Mapping[str, str] = {"out": RESULTS}

    def __init__(self, keys: Sequence[str], rows: pa.Schema) -> None:
        super().__init__(KeyedRows(keys, rows))
        self.schema = signed_schema(self._table.schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(self._table.keys, change_schema(self._table.schema))]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        records = [batch.record for _, batch in inputs if batch.rows]
        if not records:
            return {}
        table = self._table
        changes = pa.concat_batches(records)
        found = table.find(changes)
        slots = table.index.ordered(found.slots)
        row_of = np.empty(table.index.capacity, np.int64)
        row_of[found.slots] = np.arange(len(slots))
        new = changes.take(pa.array(row_of[slots])).select(table.schema.names)
        comes = ~deletions(changes)[row_of[slots]]
        goes = table.kept.has(slots)
        old = table.kept.take(slots)
        same = comes & goes & ~differ(old.columns, new.columns, len(slots))
        comes, goes = comes & ~same, goes & ~same
        buckets = table.index.buckets[slots]
        table.remove(slots[~comes & ~same])
        table.put(slots[comes], new.filter(pa.array(comes)))
        # The old and the new row of a key side by side, the old one first.
        self.ledger.add(ROWS, "-applied", len(found.slots))
        self.ledger.add(RESULTS, "+results", int(np.count_nonzero(goes) + np.count_nonzero(comes)))
        chosen = np.flatnonzero(np.column_stack([goes, comes]).ravel())
        if len(chosen) == 0:
            return {}
        rows = pa.concat_batches([old, new]).take(pa.array(chosen // 2 + len(slots) * (chosen % 2)))
        signs = pa.array((2 * (chosen % 2) - 1).astype(np.int8))
        record = pa.RecordBatch.from_arrays([*rows.columns, signs], schema=self.schema)
        return {"out": ArrowBatch(record, buckets[chosen // 2])}
