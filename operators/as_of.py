"""A Stream's rows joined with the row that a Table had at their event time.

A row waits until the watermark has passed its time: no version that it should see is then missing, unless that one is
late. A row that comes behind the watermark, but within the Table's history, is joined at once with what is known; one
older than that is late. Rows go out in the order of (bucket, time, arrival).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.history import AT, COUNTERS, times_of, usable
from operators.kept_rows import columns_of
from operators.ledger import DUE, HELD_ROWS, PENDING, ROWS, Accounted, Entry, held_rows
from operators.pairing import pair, without_nulls
from operators.step import DEAD_LETTERS
from operators.table import GONE
from operators.tally import Tally
from operators.versions import Versions
from operators.waiting import Waiting
from seep.errors import Misuse
from seep.model.arrow import REPLICATED, ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.schema import physical

VERSIONS, WAITING = "versions", "waiting"


class AsOfLookup(Accounted):
    """Port 0: the versions of a Table's rows (`operators.history`); every other port: the stream's rows."""

    carried: Mapping[str, str] = {"late": ROWS, "errors": ROWS, "out": DUE}

    def __init__(
        self,
        keys: tuple[Sequence[str], Sequence[str]],
        inputs: tuple[pa.Schema, pa.Schema],
        stream: pa.Schema,
        time_column: str,
        history_us: int,
        how: str = "inner",
        replicated: bool = False,
        wanted: Collection[str] | None = None,
    ) -> None:
        """``inputs``: of the versions, and of the stream as it travels; ``stream``: without a hidden time.
        ``replicated``: every partition gets all versions. ``wanted``: of the columns that go out, those that are read;
        others do not come in."""
        if how not in ("inner", "left"):
            raise Misuse(f"how={how!r}; choose 'inner' or 'left'")
        rows = pa.schema([field for field in inputs[0] if field.name not in (AT, GONE)])
        self.pairing = pair(stream, keys[1], rows, keys[0])
        versions, given = inputs
        if wanted is not None:
            self.pairing = self.pairing.narrowed(wanted, keys[1], keys[0])
            versions = _only(versions, {*self.pairing.right.names, AT, GONE})
            given = _only(given, {*self.pairing.left.names, time_column})
        self._table_keys, self._stream_keys = list(keys[0]), list(keys[1])
        self._time = time_column
        self._history_us = history_us
        self._inner = how == "inner"
        self._saved_as = REPLICATED + VERSIONS if replicated else VERSIONS
        self._versions = Versions(keys[0], versions, history_us)
        self._waiting = Waiting(given)
        self._tally = Tally()
        self._late = physical(given)
        self.schema = self.pairing.schema

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "late": self._late, "errors": DEAD_LETTERS}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(self._table_keys, self._versions.schema), (self._stream_keys, self._late)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        versions = [batch.record for port, batch in inputs if port == 0 and batch.rows]
        if versions:
            record = pa.concat_batches(versions)
            self._versions.add(record, times_of(record.column(AT)))
            if not self._saved_as.startswith(REPLICATED):
                self.ledger.add(ROWS, "-applied", record.num_rows)
        batches = [batch for port, batch in inputs if port != 0 and batch.rows]
        outputs = self._wait(moment, ArrowBatch.concat(batches).by_bucket()) if batches else {}
        due = self._waiting.pop(moment.watermark)
        if due is not None:
            outputs |= self._join(*due)
        self._versions.forget(moment.watermark)
        return outputs

    def _wait(self, moment: Moment, batch: ArrowBatch) -> dict[str, ArrowBatch]:
        batch, outputs = usable(batch, self._time, self._tally)
        times = times_of(batch.record.column(self._time))
        late = times < moment.watermark_before - self._history_us
        if late.any():
            outputs["late"] = batch.chosen(late)
            self._tally.add("late", outputs["late"].buckets)
            batch, times = batch.chosen(~late), times[~late]
        if batch.rows:
            before = len(self._waiting.index)
            self._waiting.add(batch, times, moment.epoch)
            self.ledger.move(ROWS, "kept", HELD_ROWS, len(self._waiting.index) - before)
        return outputs

    def _join(self, batch: ArrowBatch, times: npt.NDArray[np.int64]) -> dict[str, ArrowBatch]:
        keys = columns_of(batch.record, self._stream_keys)
        slots = np.where(without_nulls(keys, batch.rows), self._versions.at(keys, times), -1)
        self.ledger.move(HELD_ROWS, "due", DUE, batch.rows)
        if self._inner:
            self.ledger.add(DUE, "-unmatched", int(np.count_nonzero(slots < 0)))
            found = np.flatnonzero(slots >= 0)
            batch, slots = batch.chosen(found), slots[found]
        if batch.rows == 0:
            return {}
        rows = self._versions.kept.take(slots)
        columns = [
            *columns_of(batch.record, self.pairing.left.names),
            *columns_of(rows, self.pairing.right_values),
        ]
        return {"out": ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), batch.buckets)}

    def content(self) -> pa.RecordBatch:
        """The rows that wait."""
        return self._waiting.content().select(self.pairing.left.names)

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState(
            {
                self._saved_as: self._versions.snapshot(full),
                WAITING: self._waiting.snapshot(full),
                COUNTERS: self._tally.snapshot(full),
            }
        )

    def mostly_changed(self) -> bool:
        return self._versions.index.mostly_changed() and self._waiting.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if self._saved_as in state.tables:
            self._versions.load(state.tables[self._saved_as])
        if WAITING in state.tables:
            self._waiting.load(state.tables[WAITING])
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return {(HELD_ROWS, PENDING): held_rows(state, WAITING)}

    def statistics(self) -> dict[str, int]:
        size = self._versions.size_bytes + self._waiting.size_bytes
        return {"keys": self._versions.keys, "state_bytes": size, **self._tally.totals()}


def _only(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])
