"""The latest row of each key as a Table.

Rows are kept as the columns they came in, in chunks; an entry is a position among them. A new row is appended, and
the chunks are rewritten when half of what they hold is out of date, so an epoch costs what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from operators.aggregates import evaluate
from operators.changes import DELETED, INSERTED, NONE, UPDATED, change_column, change_schema, differ
from operators.index import KeyIndex, Slots, grown, split_deleted, state_table
from operators.kernels.folds import last_rows
from seep.errors import Misuse
from seep.model.arrow import KEY, ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.keyspace import check_keys
from seep.model.schema import physical

TABLE = "rows"
_MANY_CHUNKS = 64
_VALUE = "value."


class LatestTable:
    """Latest by arrival. ``deleted``: a row for which this holds deletes its key. Out come the changes."""

    def __init__(self, keys: Sequence[str], schema: pa.Schema, deleted: pl.Expr | None = None) -> None:
        check_keys(schema, keys)
        self._schema = physical(schema)
        self._keys = list(keys)
        self._deleted = deleted
        if deleted is not None:
            empty = pa.RecordBatch.from_pylist([], schema=self._schema)
            kind = evaluate(empty, {"deleted": deleted})["deleted"].type
            if not pa.types.is_boolean(kind):
                raise Misuse(f"table: deleted= gives a {kind}; it must be true or false")
        self._index = KeyIndex([self._schema.field(name).type for name in keys], timed=False)
        self._positions = np.zeros(self._index.capacity, np.int64)
        self._last = np.zeros(self._index.capacity, np.int64)
        self._chunks: list[pa.RecordBatch] = []
        self._held = 0
        self.schema = change_schema(self._schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        record = ArrowBatch.concat(batches).record
        found = self._index.find([record.column(name) for name in self._keys], record.num_rows)
        self._grow()
        slots = self._index.ordered(found.touched)
        new = np.isin(slots, found.fresh)
        last_rows(found.slots, self._last)
        latest = record.take(pa.array(self._last[slots]))
        gone = self._gone(latest)
        kinds = np.where(gone, np.where(new, NONE, DELETED), np.where(new, INSERTED, UPDATED))
        known = np.flatnonzero(~new)
        old = self._rows(slots[known])
        same = known[~differ(old.columns, latest.take(pa.array(known)).columns, len(known))]
        kinds[same] = np.where(gone[same], DELETED, NONE)
        output = self._output(slots, kinds, old, known, latest)
        written = (kinds == INSERTED) | (kinds == UPDATED)
        self._index.remove(slots[gone])
        self._write(slots[written], latest.take(pa.array(np.flatnonzero(written))))
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
        return {"out": ArrowBatch(record, self._index.buckets[slots[changed]])}

    # --- the rows ------------------------------------------------------------------------------------------------

    def _rows(self, slots: Slots) -> pa.RecordBatch:
        """The rows kept for these entries."""
        table = pa.Table.from_batches(self._chunks, schema=self._schema).take(pa.array(self._positions[slots]))
        return pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())

    def _write(self, slots: Slots, rows: pa.RecordBatch) -> None:
        self._positions[slots] = self._held + np.arange(len(slots))
        if len(slots):
            self._chunks.append(rows)
            self._held += len(slots)
        if len(self._chunks) > _MANY_CHUNKS or self._held > 2 * len(self._index) + _MANY_CHUNKS:
            live = self._index.all()
            self._chunks = [self._rows(live)]
            self._positions[live] = np.arange(len(live))
            self._held = len(live)

    def _grow(self) -> None:
        if len(self._positions) < self._index.capacity:
            self._positions = grown(self._positions, self._index.capacity)
            self._last = grown(self._last, self._index.capacity)

    def content(self) -> pa.RecordBatch:
        """The latest row of every key."""
        return self._rows(self._index.ordered(self._index.all()))

    def snapshot(self, full: bool) -> ArrowState:
        def values(slots: Slots) -> dict[str, pa.Array]:
            rows = self._rows(slots)
            return {_VALUE + name: column for name, column in zip(rows.schema.names, rows.columns, strict=True)}

        return ArrowState({TABLE: state_table(self._index, full, values)})

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE not in state.tables:
            return
        deleted, entries = split_deleted(state.tables[TABLE])
        if len(deleted):
            self._index.forget(deleted)
        found = self._index.restore(entries.column(KEY))
        self._grow()
        columns = [entries.column(_VALUE + name) for name in self._schema.names]
        self._write(found.slots, pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def statistics(self) -> dict[str, int]:
        size = self._index.size_bytes + sum(chunk.nbytes for chunk in self._chunks)
        return {"keys": len(self._index), "state_bytes": int(size)}
