"""The best rows of each key so far, as a Table with a row for each place.

Only they are kept. Rows that are worse than the last of a full key are left out at a glance; the others are ranked
together with the rows kept for their keys, and what differs at a place is a change: at most one for each place, none
where the same row stays. With shared ranks better rows may push more than one row out, so places can also be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from operators.changes import DELETED, INSERTED, NONE, UPDATED, change_column, change_schema, differ
from operators.index import KeyIndex, Slots
from operators.ledger import RESULTS, ROWS, Accounted
from operators.ranking import RANK, WORST, Numbers, Ranking
from operators.room import grown
from operators.row_store import RowStore, spread
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.keyspace import check_keys
from seep.model.schema import physical

TABLE = "best"
PLACE = "place"
"""Where rows share ranks, this column numbers them from 1: key and place are the Table's key."""


class Top(Accounted):
    """``ties="number"``: ``n`` rows at most, with ranks 1, 2, 3. ``"rank"``: equals share a rank (1, 1, 3)."""

    carried: Mapping[str, str] = {"out": RESULTS}

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        n: int,
        by: Sequence[str | pl.Expr],
        descending: bool = True,
        ties: str = "number",
    ) -> None:
        check_keys(schema, keys)
        schema = physical(schema)
        self._keys = list(keys)
        self._columns = schema.names
        self._ranking = Ranking(schema, by, n, descending, ties, keys)
        self._index = KeyIndex([schema.field(name).type for name in keys], timed=False)
        self._store = RowStore(self._index, schema.append(pa.field(RANK, pa.int64())), many=True)
        self._places = np.zeros(self._index.capacity, np.int64)
        self._limits = np.zeros(self._index.capacity, np.int64)
        """By slot: rows that are coarsely worse than this cannot reach the best."""
        self._loaded = False
        """Limits are still to be set: several states are loaded one after the other."""
        self._placed = ties == "rank"
        fields = [*self._store.schema, *([pa.field(PLACE, pa.int64())] if self._placed else [])]
        self._rows_schema = pa.schema(fields)
        self.schema = change_schema(self._rows_schema)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        self._settle()
        record = ArrowBatch.concat(batches).record
        found = self._index.find([record.column(name) for name in self._keys], record.num_rows, changed=False)
        self._prepare(found.fresh)
        worse = self._ranking.coarse(record) > self._limits[found.slots]
        hopeful = np.flatnonzero(~worse)
        self.ledger.add(ROWS, "-worse", int(np.count_nonzero(worse)))
        self.ledger.add(ROWS, "-ranked", len(hopeful))
        if len(hopeful) == 0:
            return {}
        record = record.select(self._columns).take(pa.array(hopeful))
        slots = self._index.ordered(np.unique(found.slots[hopeful]))
        self._places[slots] = np.arange(len(slots))
        old, old_counts = self._store.read(slots), self._store.counts[slots]
        rows = pa.concat_batches([old.select(self._columns), record])
        groups = np.concatenate([np.repeat(np.arange(len(slots)), old_counts), self._places[found.slots[hopeful]]])
        best = self._ranking.best(rows, [groups])
        chosen = rows.take(pa.array(best.rows))
        new = pa.RecordBatch.from_arrays([*chosen.columns, pa.array(best.ranks)], schema=self._store.schema)
        counts = np.bincount(best.groups, minlength=len(slots))
        return self._change(slots, old, old_counts, new, counts)

    def _change(
        self, slots: Slots, old: pa.RecordBatch, old_counts: Numbers, new: pa.RecordBatch, counts: Numbers
    ) -> dict[str, ArrowBatch]:
        """Keep the new rows of these keys; emit what differs from the old ones."""
        begins = np.zeros(len(slots), np.int64)
        length = np.maximum(old_counts, counts)
        group, place = np.repeat(np.arange(len(slots)), length), spread(begins, length)
        was, is_now = place < old_counts[group], place < counts[group]
        kinds = np.where(was, np.where(is_now, NONE, DELETED), INSERTED)
        old_rows = (np.cumsum(old_counts) - old_counts)[group] + place
        new_rows = (np.cumsum(counts) - counts)[group] + place
        both = np.flatnonzero(was & is_now)
        before, after = old.take(pa.array(old_rows[both])), new.take(pa.array(new_rows[both]))
        kinds[both[differ(before.columns, after.columns, len(both))]] = UPDATED
        changed = np.flatnonzero(kinds != NONE)
        self.ledger.add(RESULTS, "+results", len(changed))
        if len(changed) == 0:
            return {}
        touched = np.unique(group[changed])
        kept = new.take(pa.array(spread((np.cumsum(counts) - counts)[touched], counts[touched])))
        self._index.mark(slots[touched])
        self._store.write(slots[touched], kept, counts[touched])
        self._limit(slots[touched])
        self._store.tidy()
        # A delete carries the old values, everything else the new ones.
        source = np.where(kinds == DELETED, new.num_rows + old_rows, new_rows)[changed]
        rows = pa.concat_batches([new, old]).take(pa.array(source))
        columns = [*rows.columns, *([pa.array(place[changed] + 1)] if self._placed else [])]
        record = pa.RecordBatch.from_arrays([*columns, change_column(kinds[changed])], schema=self.schema)
        return {"out": ArrowBatch(record, self._index.buckets[slots[group[changed]]])}

    def _settle(self) -> None:
        if self._loaded:
            self._loaded = False
            self._prepare(np.empty(0, np.int64))
            self._limit(self._index.all())

    def _prepare(self, fresh: Slots) -> None:
        self._store.prepare(fresh)
        if len(self._places) < self._index.capacity:
            self._places = np.zeros(self._index.capacity, np.int64)
            self._limits = grown(self._limits, self._index.capacity)
        self._limits[fresh] = WORST

    def _limit(self, slots: Slots) -> None:
        """Where all places are taken, the last row sets the limit."""
        full = slots[self._store.counts[slots] >= self._ranking.n]
        self._limits[slots] = WORST
        self._limits[full] = self._ranking.coarse(self._store.read_last(full).select(self._columns))

    def content(self) -> pa.RecordBatch:
        """The best rows of every key."""
        slots = self._index.ordered(self._index.all())
        rows, counts = self._store.read(slots), self._store.counts[slots]
        places = pa.array(spread(np.ones(len(slots), np.int64), counts))
        columns = [*rows.columns, *([places] if self._placed else [])]
        return pa.RecordBatch.from_arrays(columns, schema=self._rows_schema)

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({TABLE: self._store.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._store.load(state.tables[TABLE])
            self._loaded = True

    def statistics(self) -> dict[str, int]:
        return {"keys": len(self._index), "state_bytes": int(self._index.size_bytes + self._store.size_bytes)}
