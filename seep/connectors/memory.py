"""Rows in memory: as a source, the input of tests and small tables; as a sink, the result that `seep.run` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from seep.connectors.contract import Committed, Opening, Publish, Rows
from seep.errors import Misuse
from seep.model.schema import infer_schema, normalise, physical, record_of, schema_of


class MemorySource:
    """Rows that are there: dicts, dataclasses, tuples, a pyarrow.Table, a polars.DataFrame.

    ``per_epoch`` is how many of them go into an epoch.


    >>> MemorySource([{"word": "a"}, {"word": "b"}], per_epoch=1).schema.names
    ['word']
    """

    splits = 1

    def __init__(self, rows: Iterable[Any] | pa.Table, per_epoch: int | None = None, schema: Any = None) -> None:
        if per_epoch is not None and (type(per_epoch) is not int or per_epoch < 1):
            raise Misuse(f"MemorySource: per_epoch={per_epoch!r}; give at least 1, or leave it out")
        self.per_epoch = per_epoch
        if isinstance(rows, pl.DataFrame):
            rows = rows.to_arrow()
        if isinstance(rows, pa.Table | pa.RecordBatch):
            self._record = in_one_piece(rows)
            if schema is not None and physical(schema_of(schema)) != self._record.schema:
                raise Misuse("MemorySource: the table has other columns than schema= says; cast it, or leave that out")
        else:
            if isinstance(rows, Mapping):
                raise Misuse("MemorySource: a dict is no list of rows; of columns, give pyarrow.table(..) of it")
            if not isinstance(rows, Iterable):
                raise Misuse(f"MemorySource: {rows!r} is neither rows nor a pyarrow.Table")
            found = list(rows)
            self._record = record_of(found, schema_of(schema) if schema is not None else infer_schema(found))

    @property
    def schema(self) -> pa.Schema:
        return self._record.schema

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Rows | None:
        start, total = position or 0, self._record.num_rows
        if until is None:
            end = min(total, start + min(limit_rows, self.per_epoch or limit_rows))
        else:
            end = until
        return Rows(self._record.slice(start, end - start), end, end >= total)

    def behind(self, split: int, position: Any, now_ms: int) -> int:
        return int(self._record.num_rows) - (position or 0)


def in_one_piece(given: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """A table of the user's, in physical form."""
    table = given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    chunks = table.combine_chunks().to_batches()
    return normalise(chunks[0] if chunks else pa.RecordBatch.from_pylist([], schema=table.schema))


class MemorySink:
    """Keeps every row: `seep.run` gives them back as a pyarrow.Table, under the sink's name. `collect` is short for it.

    >>> import seep
    >>> flow = seep.Flow("words")
    >>> flow.source("words", seep.MemorySource([{"word": "a"}])).sink("kept", seep.MemorySink())
    >>> seep.run(flow)["kept"].to_pylist()
    [{'word': 'a'}]
    """

    kind = "memory"

    def open(self, opening: Opening) -> Publish:
        # The committed log is the result: there is nothing to show elsewhere.
        return _keep


def _keep(commits: Sequence[Committed]) -> int:
    return -1
