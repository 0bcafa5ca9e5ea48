"""A broadcast input of an operator: the latest row of each of its keys, the same in every partition.

Every partition gets every row, so every partition holds all of it. In the state it is a table that is never cut by key
range (`seep.model.arrow.REPLICATED`): a split copies it, and a merge loads it twice, which changes nothing, since both
copies are of one epoch.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.rowwise import Row, rows_in
from seep.model.arrow import BUCKET, DELETED, KEY, ArrowBatch
from seep.model.keyform import encode
from seep.model.schema import physical

_Place = tuple[int, bytes]
"""(bucket, canonical bytes) of a key."""


class Replica(Mapping[Any, Row]):
    """By key (a scalar for one column, a named tuple for several): its latest row. Iterates in canonical order, not in
    that of arrival, which a restore would not know."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema) -> None:
        self._keys = list(keys)
        self._schema = physical(schema)
        self._key_class = namedtuple("Key", keys, rename=True) if len(keys) > 1 else None
        self._rows: dict[Any, Row] = {}
        self._places: dict[Any, _Place] = {}
        self._order: list[Any] | None = []
        self._changed: dict[Any, None] = {}

    def __getitem__(self, key: Any) -> Row:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        if self._order is None:
            self._order = sorted(self._rows, key=self._places.__getitem__)
        return iter(self._order)

    def take(self, batch: ArrowBatch) -> None:
        """Rows in their final order: of a key the last one stays."""
        record = batch.record.select(self._schema.names)
        offsets, words = encode([record.column(name) for name in self._keys], batch.rows)
        data, edges = words.tobytes(), (offsets * 8).tolist()
        at = [self._schema.get_field_index(name) for name in self._keys]
        for index, (row, bucket) in enumerate(zip(rows_in(record), batch.buckets.tolist(), strict=True)):
            values = [row[column] for column in at]
            key = self._key_class(*values) if self._key_class is not None else (values[0] if values else None)
            if key not in self._rows:
                self._places[key] = (bucket, data[edges[index] : edges[index + 1]])
                self._order = None
            self._rows[key] = row
            self._changed[key] = None

    def snapshot(self, full: bool) -> pa.RecordBatch:
        """A state table: all rows, or those that have come since the last snapshot."""
        chosen = list(self._rows if full else self._changed)
        self._changed.clear()
        places = [self._places[key] for key in chosen]
        columns = [
            pa.array([bucket for bucket, _ in places], pa.uint16()),
            pa.array([identity for _, identity in places], pa.binary()),
        ]
        rows = [self._rows[key] for key in chosen]
        columns += [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self._schema)]
        fields = [pa.field(BUCKET, pa.uint16()), pa.field(KEY, pa.binary()), *self._schema]
        if not full:
            columns.append(pa.array(np.zeros(len(rows), np.bool_)))
            fields.append(pa.field(DELETED, pa.bool_()))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def load(self, table: pa.RecordBatch) -> None:
        self.take(ArrowBatch(table, table.column(BUCKET).to_numpy()))
        self._changed.clear()
