"""`route(fn)`: a function says by what key value a row is sent.

The value is hashed as a key column of its type would be, so it never shows how many partitions there are, and
``route(lambda row: row.store)`` sends where ``key_by("store")`` would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from operators.rowwise import rows_in
from operators.step import DEAD_LETTERS, Site, finish, halving
from seep.model.arrow import ArrowBatch
from seep.model.hashing import hash_rows
from seep.model.keyform import encode, key_problem
from seep.model.keyspace import to_buckets

TARGET = "__target"
"""The column that tells the route where each row goes (uint16); it does not travel."""


@dataclass(frozen=True)
class Direct:
    """Adds the target bucket of each row as the last column."""

    name: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    """With the target."""
    on_error: str = "dead_letter"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def run(self, batch: ArrowBatch, site: Site) -> dict[str, ArrowBatch]:
        parts, failures = halving(batch, self._direct, self.on_error, site)
        return finish(batch, parts, failures, self.on_error, site)

    def _direct(self, part: ArrowBatch) -> ArrowBatch:
        # Values of several types make no column: halving then comes down to rows of one type, with the same hashes.
        given = [self.function(row) for row in rows_in(part.record)]
        try:
            values = pa.array(given)
        except pa.ArrowException:
            nested = next((value for value in given if isinstance(value, tuple | list | dict)), None)
            if nested is not None:
                raise TypeError(
                    f"route must give one value that can be a key, not {nested!r}; join its parts"
                ) from None
            raise
        if pa.types.is_null(values.type):
            values = values.cast(pa.string())
        problem = key_problem(values.type)
        if problem is not None:
            raise TypeError(f"route must give a value that can be a key, not a {values.type}: {problem}")
        targets = to_buckets(hash_rows(*encode([values], part.rows)))
        arrays = [*part.record.columns, pa.array(targets)]
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=self.schema), part.buckets)
