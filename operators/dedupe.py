"""The first row of each key; later ones are dropped and counted.

Only keys are kept, and with a time to live when each is to be forgotten: that long after its first row, by the time of
epochs. Then the next row is a first one again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.expiry import Expiries
from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.kernels.folds import last_rows
from operators.ledger import HELD_KEYS, PENDING, ROWS, Accounted, Entry, held_rows
from operators.room import grown
from operators.tally import Tally
from seep.model.arrow import KEY, ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.keyspace import check_keys
from seep.model.schema import TIMESTAMP, physical

TABLE = "seen"
COUNTERS = "counters"
_EXPIRES = "expires_ms"


class Dedupe(Accounted):
    """``keys``: the columns by which rows are the same. ``ttl_ms`` None: they are remembered for ever."""

    carried: Mapping[str, str] = {"out": ROWS}

    def __init__(self, keys: Sequence[str], schema: pa.Schema, ttl_ms: int | None = None) -> None:
        check_keys(schema, keys)
        self.schema = physical(schema)
        self._keys = list(keys)
        self._ttl_ms = ttl_ms
        self._index = KeyIndex([self.schema.field(name).type for name in keys], timed=False)
        self._last = np.zeros(self._index.capacity, np.int64)
        self._expires = np.zeros(self._index.capacity, np.int64)
        self._expiries = Expiries()
        self._tally = Tally()

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        if self._ttl_ms is not None:
            due = self._expiries.due(moment.now_ms)
            self.ledger.add(HELD_KEYS, "-expired", len(due))
            self._index.remove(due)
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        batch = ArrowBatch.concat(batches).by_bucket()
        columns = [batch.record.column(name) for name in self._keys]
        found = self._index.find(columns, batch.rows, changed=False)
        self._grow()
        self._index.mark(found.fresh)
        self._remember(found.fresh, moment.now_ms)
        # Read backwards, the last row of a key is its first.
        last_rows(np.ascontiguousarray(found.slots[::-1]), self._last)
        kept = np.zeros(batch.rows, np.bool_)
        kept[batch.rows - 1 - self._last[found.fresh]] = True
        self._tally.add("filtered", batch.buckets[~kept])
        self.ledger.add(ROWS, "-filtered", int(np.count_nonzero(~kept)))
        self.ledger.add(HELD_KEYS, "+opened", len(found.fresh))
        return {"out": batch.chosen(kept)} if len(found.fresh) else {}

    def _remember(self, slots: Slots, now_ms: int) -> None:
        if self._ttl_ms is not None and len(slots):
            self._expires[slots] = now_ms + self._ttl_ms
            self._expiries.schedule(now_ms + self._ttl_ms, slots)

    def _grow(self) -> None:
        if len(self._last) < self._index.capacity:
            self._last = grown(self._last, self._index.capacity)
            self._expires = grown(self._expires, self._index.capacity)

    def content(self) -> pa.RecordBatch:
        """The keys that were seen, and until when each is remembered."""
        slots = self._index.ordered(self._index.all())
        columns = dict(zip(self._keys, self._index.keys(slots), strict=True))
        if self._ttl_ms is not None:
            columns["until" if "until" not in columns else _EXPIRES] = pa.array(self._expires[slots] * 1000).view(
                TIMESTAMP
            )
        return pa.RecordBatch.from_pydict(columns)

    def snapshot(self, full: bool) -> ArrowState:
        def values(slots: Slots) -> dict[str, pa.Array]:
            return {} if self._ttl_ms is None else {_EXPIRES: pa.array(self._expires[slots])}

        return ArrowState({TABLE: state_table(self._index, full, values), COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])
        if TABLE not in state.tables:
            return
        deleted, entries = split_deleted(state.tables[TABLE])
        if len(deleted):
            self._index.forget(deleted)
        slots = self._index.restore(entries.column(KEY)).slots
        self._grow()
        if self._ttl_ms is None:
            return
        self._expires[slots] = entries.column(_EXPIRES).to_numpy()
        live = self._index.all()
        self._expiries.replace(live, self._expires[live])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return {(HELD_KEYS, PENDING): held_rows(state, TABLE)}

    def statistics(self) -> dict[str, int]:
        size = self._index.size_bytes + self._last.nbytes + self._expires.nbytes
        return {"keys": len(self._index), "state_bytes": int(size), **self._tally.totals()}
