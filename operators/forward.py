"""Where a grouping leads: rows as they came, in the order of the buckets they were sent to.

It has no state. What it is for are the stateless steps fused behind it, which run where the rows were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from operators.ledger import ROWS, Accounted
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment


class Forward(Accounted):
    """Rows in, the same rows out."""

    carried: Mapping[str, str] = {"out": ROWS}

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        return {"out": ArrowBatch.concat(batches).by_bucket()} if batches else {}

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({})

    def mostly_changed(self) -> bool:
        return False

    def load(self, state: ArrowState) -> None:
        """There is nothing to load."""

    def statistics(self) -> dict[str, int]:
        return {}

    def content(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=pa.schema([]))
