"""The best rows of each key and window.

All rows of a closed window come in one epoch, the one in which it closes, so nothing is remembered: each epoch's rows
are ranked by key and window, and go out by (bucket, window, key bytes, rank).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from operators.index import KeyIndex
from operators.ledger import RESULTS, ROWS, Accounted
from operators.ranking import RANK, Ranking, sort_codes
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.keyspace import check_keys
from seep.model.schema import physical


class WindowTop(Accounted):
    """``windows``: the columns that tell windows apart, the one they are ordered by first."""

    carried: Mapping[str, str] = {"out": RESULTS}

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        windows: Sequence[str],
        n: int,
        by: Sequence[str | pl.Expr],
        descending: bool = True,
        ties: str = "number",
    ) -> None:
        check_keys(schema, keys)
        schema = physical(schema)
        self._keys = list(keys)
        self._windows = list(windows)
        self._ranking = Ranking(schema, by, n, descending, ties, [*keys, *windows])
        self._index = KeyIndex([schema.field(name).type for name in keys], timed=False)
        self._places = np.zeros(0, np.int64)
        self.schema = schema.append(pa.field(RANK, pa.int64()))

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return {}
        record = ArrowBatch.concat(batches).record.select(self.schema.names[:-1])
        found = self._index.find([record.column(name) for name in self._keys], record.num_rows)
        slots = self._index.ordered(found.touched)
        if len(self._places) < self._index.capacity:
            self._places = np.zeros(self._index.capacity, np.int64)
        self._places[slots] = np.arange(len(slots))
        places, buckets = self._places[found.slots], self._index.buckets[found.slots]
        self._index.remove(slots)
        windows = [code for name in self._windows for code in sort_codes(record.column(name), descending=False)]
        # Keys in their order are in the order of their buckets, too; the window stands between the two.
        best = self._ranking.best(record, [buckets.astype(np.int64), windows[0], places, *windows[1:]])
        self.ledger.add(ROWS, "-ranked", len(found.slots))
        self.ledger.add(RESULTS, "+results", len(best.ranks))
        rows = record.take(pa.array(best.rows))
        ranked = pa.RecordBatch.from_arrays([*rows.columns, pa.array(best.ranks)], schema=self.schema)
        return {"out": ArrowBatch(ranked, buckets[best.rows])}

    def content(self) -> pa.RecordBatch:
        """Nothing is remembered."""
        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({})

    def mostly_changed(self) -> bool:
        return False

    def load(self, state: ArrowState) -> None:
        """There is nothing to load."""

    def statistics(self) -> dict[str, int]:
        return {"keys": 0, "state_bytes": 0}
