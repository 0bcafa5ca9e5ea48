"""The latest row of each key by event time, and every version of it on the way to those who ask what was valid when.

A Table has at most one change for each key and epoch, and its readers see the newest row; to know what was valid at
some time one needs every version. They leave on an output of their own, ``versions``: the rows as they came, with their
time and whether they delete their key in two hidden columns behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from operators.aggregates import evaluate
from operators.changes import change_schema, changed_rows
from operators.index import Slots
from operators.keyed_rows import TABLE, KeyedRows
from operators.ledger import RESULTS, ROWS, Accounted
from operators.stateless import times_good
from operators.step import DEAD_LETTERS
from operators.table import GONE, check_deleted
from operators.tally import Tally
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import FOREVER
from seep.model.schema import TIMESTAMP, physical

AT = "__at"
"""The event time of a version."""
COUNTERS = "counters"


def version_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*physical(schema), pa.field(AT, TIMESTAMP), pa.field(GONE, pa.bool_())])


class HistoryTable(Accounted):
    """Of two rows of a key the one with the later event time counts; of equal times the one that arrived later.

    A deletion is remembered until it is older than the history behind the watermark, so that an older row that comes
    after it does not bring its key back.
    """

    carried: Mapping[str, str] = {"versions": ROWS, "errors": ROWS, "out": RESULTS}

    def __init__(
        self,
        keys: Sequence[str],
        rows: pa.Schema,
        inputs: pa.Schema,
        time_column: str,
        history_us: int,
        deleted: pl.Expr | None = None,
    ) -> None:
        """``rows``: the columns of the Table; ``inputs``: those and, if it is another one, the time column."""
        self._rows = physical(rows)
        self._input = physical(inputs)
        self._deleted = deleted
        check_deleted(self._rows, deleted)
        self._time = time_column
        self._history_us = history_us
        self._table = KeyedRows(keys, version_schema(rows))
        self._deleted_at = np.full(self._table.index.capacity, FOREVER, np.int64)
        """By slot, when its key was deleted."""
        self._soonest = FOREVER
        self._tally = Tally()
        self.schema = change_schema(self._rows)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "versions": self._table.schema, "errors": DEAD_LETTERS}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(self._table.keys, self._input)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        batches = [batch for _, batch in inputs if batch.rows]
        outputs: dict[str, ArrowBatch] = {}
        if batches:
            batch, outputs = usable(ArrowBatch.concat(batches).by_bucket(), self._time, self._tally)
            if batch.rows:
                versions = ArrowBatch(self._versions(batch.record), batch.buckets)
                outputs |= {"versions": versions, **self._turn(versions.record)}
        self._forget(moment.watermark - self._history_us)
        return outputs

    def _versions(self, record: pa.RecordBatch) -> pa.RecordBatch:
        columns = [record.column(name) for name in self._rows.names]
        gone: pa.Array = pa.array(np.zeros(record.num_rows, np.bool_))
        if self._deleted is not None:
            gone = evaluate(record, {"deleted": self._deleted})["deleted"].fill_null(False)
        return pa.RecordBatch.from_arrays([*columns, record.column(self._time), gone], schema=self._table.schema)

    def _turn(self, versions: pa.RecordBatch) -> dict[str, ArrowBatch]:
        table = self._table
        found = table.find(versions)
        slots = table.index.ordered(found.touched)
        times = times_of(versions.column(AT))
        # The last of each slot's rows in the order of (time, arrival).
        order = np.lexsort((times, found.slots))
        newest = np.empty(table.index.capacity, np.int64)
        newest[found.slots[order]] = order
        known = table.kept.has(slots)
        old = table.kept.take(slots)
        wins = ~known | (times[newest[slots]] >= times_of(old.column(AT)))
        new = versions.take(pa.array(newest[slots]))
        now_gone = flags(new.column(GONE))
        was_gone = flags(old.column(GONE))
        was = known & ~was_gone
        there = np.where(wins, ~now_gone, was)
        names = self._rows.names
        # A row that loses changes nothing: compare what is kept with itself.
        source = pa.array(np.where(wins, np.arange(len(slots)), len(slots) + np.arange(len(slots))))
        after = pa.concat_batches([new, old]).take(source)
        shown = changed_rows(was, [old.column(n) for n in names], there, [after.column(n) for n in names])
        self.ledger.add(RESULTS, "+results", len(shown.rows))
        self._put(slots[wins], new.filter(pa.array(wins)))
        if len(shown.rows) == 0:
            return {}
        record = pa.RecordBatch.from_arrays(shown.columns, schema=self.schema)
        return {"out": ArrowBatch(record, table.index.buckets[slots[shown.rows]])}

    def _put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        self._table.put(slots, rows)
        self._note(slots, rows)

    def _note(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Remember which of these rows are deletions, and since when."""
        if len(self._deleted_at) < self._table.index.capacity:
            times = np.full(self._table.index.capacity, FOREVER, np.int64)
            times[: len(self._deleted_at)] = self._deleted_at
            self._deleted_at = times
        self._deleted_at[slots] = np.where(flags(rows.column(GONE)), times_of(rows.column(AT)), FOREVER)
        self._soonest = min(self._soonest, int(self._deleted_at[slots].min(initial=FOREVER)))

    def _forget(self, limit: int) -> None:
        if self._soonest > limit:
            return
        due = np.flatnonzero(self._deleted_at <= limit)
        self._table.remove(due)
        self._deleted_at[due] = FOREVER
        self._soonest = int(self._deleted_at.min())

    def content(self) -> pa.RecordBatch:
        """The latest row of every key."""
        held = self._table.content()
        return held.filter(pa.array(~flags(held.column(GONE)))).select(self._rows.names)

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({TABLE: self._table.snapshot(full), COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._table.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._table.load(state.tables[TABLE])
            self._deleted_at[:] = FOREVER
            slots = self._table.index.all()
            self._note(slots, self._table.kept.take(slots))
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def statistics(self) -> dict[str, int]:
        return {**self._table.statistics(), **self._tally.totals()}


def usable(batch: ArrowBatch, time_column: str, tally: Tally) -> tuple[ArrowBatch, dict[str, ArrowBatch]]:
    """The rows with a time, and the others as ``errors``, counted."""
    good = times_good(batch.record.column(time_column), "us")
    if good.all():
        return batch, {}
    tally.add("errors", batch.buckets[~good])
    return batch.chosen(good), {"errors": batch.chosen(~good)}


def times_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Event times in µs; 0 for a null."""
    # A copy: a view of Arrow's memory cannot be written to, which is another type to compiled loops.
    return np.array(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False))
