"""What all kinds of windows share.

Rows are judged by the watermark of the epoch before. A row all of whose windows had ended by then is late: it goes
out unchanged on ``late``. A row without a usable time is a dead letter. After the rows, windows whose end the epoch's
own watermark has reached are closed: emitted in the order (bucket, time, key bytes) and forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from operators.accumulators import Refused
from operators.aggregates import Spec
from operators.changes import change_schema
from operators.combine import Combine, Forms, is_folded
from operators.emission import HELD, Pacer, Revision
from operators.groups import TABLE, Groups
from operators.index import Found, Slots
from operators.kernels.windows import BROKEN, LATE, START, window_starts
from operators.ledger import RESULTS, ROWS, Accounted, Entry
from operators.memory import Memory, is_row_count
from operators.refusing import COUNTERS as COUNTERS
from operators.refusing import Refusals
from operators.shape import AFTER_ALL, BEFORE_ALL, Shape
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.ids import FOREVER
from seep.model.keyform import column_of
from seep.model.schema import TIMESTAMP, physical

_LIMIT_US = FOREVER
"""Event times at or beyond this (either side of 1970) are no times."""


class Window(Accounted, ABC):
    """What the kinds of windows share: times, late rows, dead letters, how results become a Stream or a Table."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        time_column: str | None,
        names: tuple[str, str],
        aggregates: Mapping[str, Spec],
        emit: str,
        period_us: int | None,
        name: str,
        combined: Combine | None = None,
        hidden: Mapping[str, Spec] | None = None,
        on_error: str = "dead_letter",
    ) -> None:
        """``combined``: how the senders fold rows, where they do (`operators.combine`). ``hidden``: aggregates that
        the kind needs itself."""
        if emit not in ("update", "close"):
            raise Misuse(f"emit={emit!r}; choose 'close', 'update' or every('1s')")
        chosen = {**aggregates, **(hidden or {})}
        self._groups = Groups(keys, schema, chosen, timed=True, time_column=time_column, ledger=self.ledger)
        self._aggregates = dict(aggregates)
        self._counts_rows = any(is_row_count(spec) for spec in aggregates.values())
        self._forms = Forms(combined)
        self._time = time_column
        self._updates = emit == "update"
        self.carried = {"late": ROWS, "errors": ROWS, **({} if self._updates else {"out": RESULTS})}
        self._tally = Tally()
        self._refusals = Refusals(name, on_error, self._tally, self.ledger)
        self._name = name
        self._loaded = False
        self._visible = len(aggregates)
        values = self._groups.fields[: self._visible]
        windows = [pa.field(name, TIMESTAMP) for name in names]
        self._rows_schema = pa.schema([*self._groups.key_fields, *windows, *values])
        self.schema = change_schema(self._rows_schema) if self._updates else self._rows_schema
        self._input_schema = physical(schema)
        self._pacer = None if period_us is None else Pacer(self._groups.index.kinds, values, period_us)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "late": self._input_schema, "errors": DEAD_LETTERS}

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        outputs: dict[str, ArrowBatch] = {}
        self._settle()
        batches = [batch for _, batch in inputs if batch.rows]
        if batches:
            self._absorb(moment, self._forms.join(batches), outputs)
        closed = self._close(moment)
        if self._pacer is not None:
            closed = self._pacer.release(moment, self._limit(moment), self.schema)
        if closed is not None:
            outputs["out"] = closed
        return outputs

    @abstractmethod
    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        """Take the rows in; as a Table, say what has changed."""

    @abstractmethod
    def _close(self, moment: Moment) -> ArrowBatch | None:
        """Forget the windows that have ended; as a Stream, emit them. (As a Table they have said their last value
        with their last row.)"""

    def _limit(self, moment: Moment) -> int:
        """Windows that end by then are closed with this epoch."""
        if moment.watermark >= FOREVER:
            return AFTER_ALL
        return moment.now_ms * 1000 if self._time is None else moment.watermark

    def _say(self, moment: Moment, revision: Revision, outputs: dict[str, ArrowBatch]) -> None:
        if self._pacer is not None:
            self._pacer.hold(moment, revision)
            return
        rows = revision.rows(self.schema)
        if rows is not None:
            outputs["out"] = rows

    # --- rows that no window takes -------------------------------------------------------------------------------

    def _put_aside(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch], times: Any) -> None:
        """``times``: LATE or BROKEN for rows that are."""
        if times.min() > BROKEN:
            return
        late, broken = times == LATE, times == BROKEN
        if late.any() and is_folded(batch):
            self._tally.add("late", batch.buckets[late], weights_of(batch)[late])
            self.ledger.add(ROWS, "-late", int(weights_of(batch)[late].sum()))
        elif late.any():
            outputs["late"] = batch.chosen(late).by_bucket()
            self._tally.add("late", outputs["late"].buckets)
        if broken.any():
            # In canonical order, so that their positions are final.
            order = np.argsort(batch.buckets, kind="stable")
            failures = [Failure(int(row), f"no usable time in {self._time!r}") for row in np.flatnonzero(broken[order])]
            site = Site(self._name, moment.epoch, self._tally)
            outputs["errors"] = dead_letters(batch.chosen(order), failures, site)
            self._tally.add("errors", outputs["errors"].buckets)

    def _aligned(self, moment: Moment, batch: ArrowBatch, step: int, offset: int, cut: int) -> Any:
        """The start of each row's piece of time, ``step`` long; LATE where it ends by ``cut``, BROKEN without time."""
        result = np.empty(batch.rows, np.int64)
        if self._time is None:
            now = moment.now_ms * 1000
            result[:] = now - (now - offset) % step
        elif is_folded(batch):
            given = batch.record.column(START).to_numpy()
            result[:] = np.where(given + step <= cut, LATE, given)
        else:
            shape = column_of(batch.record.column(self._time))
            if shape.width == 0:
                result[:] = BROKEN
            else:
                where = (shape.values, shape.validity, shape.bit)
                window_starts(batch.rows, *where, step, offset, cut, _LIMIT_US, result)
        return result

    def _pane_times(
        self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch], shape: Shape, low: int
    ) -> Any:
        """The start of each row's pane; LATE or BROKEN where none takes it. Windows that start before ``low`` have
        closed. Rows between windows that are further apart than they are long are counted as filtered."""
        pane, offset = shape.pane, shape.offset % shape.pane
        if shape.every <= shape.size:
            times = self._aligned(moment, batch, pane, offset, low)
            self._put_aside(moment, batch, outputs, times)
            return times
        times = self._aligned(moment, batch, pane, offset, BEFORE_ALL)
        usable = times > BROKEN
        between = usable & ((times - shape.offset) % shape.every >= shape.size)
        if self._time is not None:
            times[usable & ~between & (times < low)] = LATE
        self._put_aside(moment, batch, outputs, times)
        self._leave_out(batch, between)
        times[between] = BROKEN
        return times

    def _find(
        self,
        moment: Moment,
        batch: ArrowBatch,
        times: Any,
        outputs: dict[str, ArrowBatch],
        copied: tuple[ArrowBatch, Slots] | None = None,
    ) -> Found:
        """The entries of rows at these times. Rows that a user's aggregate refuses have none: they are dead letters.
        ``copied``: the rows that these are copies of, and which."""
        given, rows = (batch, None) if copied is None else copied
        refused = Refused()
        while True:
            found = self._groups.find(batch.record, times)
            more = self._groups.memory.trial(found.slots, batch.record, rows)
            if not more:
                break
            self._groups.remove(found.fresh)
            refused |= more
            times[np.isin(np.arange(batch.rows) if rows is None else rows, list(refused))] = BROKEN
        self._refusals.say(moment, given, refused, outputs)
        if rows is not None and refused:
            copies = int(np.count_nonzero(np.isin(rows, list(refused))))
            self.ledger.add(ROWS, "-copies refused", copies - len(refused))
        return found

    def _leave_out(self, batch: ArrowBatch, between: Any) -> None:
        weights = weights_of(batch) if is_folded(batch) else np.ones(batch.rows, np.int64)
        self._tally.add("filtered", batch.buckets[between], weights[between])
        self.ledger.add(ROWS, "-filtered", int(weights[between].sum()))

    # --- state ---------------------------------------------------------------------------------------------------

    def _scratch(self) -> Memory:
        """Memory of the same aggregates, for windows that are put together."""
        return Memory(self._input_schema, self._aggregates, self._time)

    def _results(self, slots: Slots) -> list[pa.Array]:
        return self._groups.results(slots)[: self._visible]

    def _settle(self) -> None:
        if self._loaded:
            self._loaded = False
            self._derive()

    @abstractmethod
    def _derive(self) -> None:
        """The state was loaded: derive what is not saved."""

    def content(self) -> pa.RecordBatch:
        """The open windows, with their aggregates so far."""
        self._settle()
        return self._content()

    @abstractmethod
    def _content(self) -> pa.RecordBatch: ...

    def snapshot(self, full: bool) -> ArrowState:
        tables = {TABLE: self._groups.snapshot(full), COUNTERS: self._tally.snapshot(full)}
        if self._pacer is not None:
            tables[HELD] = self._pacer.snapshot(full)
        return ArrowState(tables)

    def mostly_changed(self) -> bool:
        return self._groups.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._groups.load(state.tables[TABLE])
            self._loaded = True
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])
        if HELD in state.tables and self._pacer is not None:
            self._pacer.load(state.tables[HELD])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return self._groups.holds(state)

    def statistics(self) -> dict[str, int]:
        size = self._groups.size_bytes + (0 if self._pacer is None else self._pacer.size_bytes)
        gauges = {"keys": len(self._groups.index), "state_bytes": size}
        return {**gauges, "late": 0, "errors": 0, **self._tally.totals()}


def weights_of(batch: ArrowBatch) -> Any:
    """Of how many rows each part is made."""
    weights = batch.weights
    assert weights is not None, "parts say of how many rows they are"
    return weights
