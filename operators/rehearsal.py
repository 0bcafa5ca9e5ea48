"""Users' own aggregates are tried on each row alone, before the rows get to the operator, while one is suspected of
killing the process.

A row that is in a group cannot be taken out again, and by then nobody knows which one it was. So it is left out before
it gets there, as a dead letter. What kills only together with other rows is not found so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from operators.aggregates import Spec, evaluate
from operators.custom import Aggregate, BatchAggregate
from operators.step import Failure, Site, dead_letters, positions_of, slice_of, spots
from seep.model.arrow import ArrowBatch
from seep.model.care import DIED
from seep.model.schema import physical

Inputs = Sequence[tuple[int, ArrowBatch]]


class Rehearsal:
    def __init__(self, schema: pa.Schema, aggregates: Iterable[Spec]) -> None:
        self._schema = physical(schema)
        self._own = [spec for spec in aggregates if isinstance(spec, Aggregate | BatchAggregate)]

    def sifted(self, inputs: Inputs, site: Site) -> tuple[Inputs, list[ArrowBatch]]:
        """The rows that may be run, and letters for the others."""
        care = site.care
        if not self._own or not care.needed:
            return inputs, []
        rest: list[tuple[int, ArrowBatch]] = []
        letters: list[ArrowBatch] = []
        for port in sorted({port for port, _ in inputs}):
            batch = ArrowBatch.concat([one for number, one in inputs if number == port])
            where = spots(batch.buckets, f"in{port}", positions_of(batch.buckets))
            out = [at for at, spot in enumerate(where) if spot in care.skips]
            for at, spot in enumerate(where) if care.one_by_one else ():
                if spot not in care.skips:
                    care.begin(spot, site.operator, fails=False)
                    self._try(slice_of(batch, at, at + 1).record)
            care.end()
            if out:
                letters.append(dead_letters(batch, [Failure(at, DIED) for at in out], site))
                site.tally.add("errors", batch.buckets[out])
            rest.append((port, batch.chosen(np.setdiff1d(np.arange(batch.rows), out))))
        return rest, letters

    def _try(self, row: pa.RecordBatch) -> None:
        for spec in self._own:
            column = spec.column
            value = evaluate(row, {"value": column})["value"] if isinstance(column, pl.Expr) else row.column(column)
            accumulator, slots = spec.accumulator(self._schema), np.array([1])
            accumulator.grow(2)
            accumulator.clear(slots)
            accumulator.add(slots, value)
            accumulator.result(slots)
