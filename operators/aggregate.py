"""Running aggregates by key: a Table that changes with every epoch, or one row for each key at the end of input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.accumulators import Refused
from operators.aggregates import Spec
from operators.changes import change_schema
from operators.combine import Combine, Forms
from operators.groups import TABLE, Groups
from operators.index import Found, Slots
from operators.ledger import RESULTS, ROWS, Accounted, Entry
from operators.refusing import COUNTERS, Refusals
from operators.step import DEAD_LETTERS
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import FOREVER


class Aggregate(Accounted):
    """``emit="update"``: the changes of the Table of aggregates. ``"close"``: all of it, once, when input ends."""

    carried: Mapping[str, str] = {"out": RESULTS, "errors": ROWS}

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        aggregates: Mapping[str, Spec],
        emit: str = "update",
        combined: Combine | None = None,
        time_column: str | None = None,
        name: str = "aggregate",
        on_error: str = "dead_letter",
    ) -> None:
        """``combined``: how the senders fold rows, where they do (`operators.combine`). ``time_column``: by which rows
        have an order; None: by arrival only."""
        if emit not in ("update", "close"):
            raise Misuse(f"emit={emit!r}; choose 'update' or 'close'")
        self._groups = Groups(keys, schema, aggregates, timed=False, time_column=time_column, ledger=self.ledger)
        self._forms = Forms(combined)
        self._refusals = Refusals(name, on_error, ledger=self.ledger)
        self._updates = emit == "update"
        rows = pa.schema([*self._groups.key_fields, *self._groups.fields])
        self.schema = change_schema(rows) if self._updates else rows

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        outputs: dict[str, ArrowBatch] = {}
        batches = [batch for _, batch in inputs if batch.rows]
        if batches:
            batch = self._forms.join(batches)
            record, found = self._find(moment, batch, outputs)
            if self._updates:
                slots, results, kinds = self._groups.changes(found, record)
                return outputs | self._rows(slots, [*self._groups.index.keys(slots), *results, kinds])
            self._groups.absorb(found.slots, record)
        if not self._updates and moment.watermark >= FOREVER > moment.watermark_before:
            slots = self._groups.index.ordered(self._groups.index.all())
            self.ledger.add(RESULTS, "+results", len(self._groups.index))
            return outputs | self._rows(slots, [*self._groups.index.keys(slots), *self._groups.results(slots)])
        return outputs

    def _find(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> tuple[pa.RecordBatch, Found]:
        """The rows that users' aggregates take, and their entries; the others are dead letters."""
        record, rows, refused = batch.record, np.empty(0, np.int64), Refused()
        while True:
            found = self._groups.find(record)
            more = self._groups.memory.trial(found.slots, record)
            if not more:
                break
            self._groups.remove(found.fresh)
            rows = rows if refused else np.arange(batch.rows)
            refused |= {int(rows[row]): error for row, error in more.items()}
            rows = np.delete(rows, list(more))
            record = batch.record.take(pa.array(rows))
        self._refusals.say(moment, batch, refused, outputs)
        return record, found

    def _rows(self, slots: Slots, arrays: list[pa.Array]) -> dict[str, ArrowBatch]:
        if len(slots) == 0:
            return {}
        record = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return {"out": ArrowBatch(record, self._groups.index.buckets[slots])}

    def content(self) -> pa.RecordBatch:
        """The aggregates of every key so far."""
        slots = self._groups.index.ordered(self._groups.index.all())
        fields = [*self._groups.key_fields, *self._groups.fields]
        arrays = [*self._groups.index.keys(slots), *self._groups.results(slots)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def snapshot(self, full: bool) -> ArrowState:
        tables = {TABLE: self._groups.snapshot(full)}
        if self._groups.memory.fallible:
            tables[COUNTERS] = self._refusals.tally.snapshot(full)
        return ArrowState(tables)

    def mostly_changed(self) -> bool:
        return self._groups.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._groups.load(state.tables[TABLE])
        if COUNTERS in state.tables:
            self._refusals.tally.load(state.tables[COUNTERS])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return self._groups.holds(state)

    def statistics(self) -> dict[str, int]:
        gauges = {"keys": len(self._groups.index), "state_bytes": self._groups.size_bytes}
        return {**gauges, **self._refusals.tally.totals()}
