"""What the joins of two streams share: rows of equal keys whose times lie near each other are put together.

What "near" means is the join's own (`operators.join`, `operators.window_join`): for each row, a stretch of times on the
other side. Every pair is made once, in the epoch of the later of its rows: the epoch's left rows look among all right
rows, its right rows among the earlier left ones. After the rows, those that no row in time could join any more are
dropped; if their side is kept (an outer join) and they never had a partner, they are emitted alone.

The order of the output: by bucket; inside it the pairs of the epoch's left rows as they arrived, each with its right
rows by time, then arrival; then those of its right rows, likewise; then unmatched rows, left before right, by key, time
and arrival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.chunks import Numbers
from operators.index import KeyIndex, Slots
from operators.ledger import HELD_ROWS, PENDING, RESULTS, ROWS, Accounted, Entry, held_rows
from operators.sides import Saved, Side, times_of
from operators.stateless import EARLIEST_US, LATEST_US
from operators.step import DEAD_LETTERS, Failure, Site, dead_letters
from operators.tally import Tally
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch, ArrowState, Buckets
from seep.model.epoch import Moment
from seep.model.ids import FOREVER
from seep.model.schema import physical

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
HOW = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}
"""Which sides are kept: their rows are emitted alone when they have no partner."""
COUNTERS = "counters"
_FEW_KEYS = 1_024

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JoinInput:
    """One side, as the join is told of it."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str
    """A timestamp column."""
    columns: tuple[tuple[str, str], ...]
    """What goes out: (column, its name there); of the left, the keys first; of the right, no keys."""


@dataclass
class _New:
    """The rows of this epoch that one side takes."""

    record: pa.RecordBatch
    buckets: Buckets
    times: Times
    unmatchable: npt.NDArray[np.bool_] | None
    """Rows with a null in the key."""
    slots: Slots
    touched: Slots


class Join(Accounted, ABC):
    """A join of two streams by key and time."""

    carried: Mapping[str, str] = {"late_left": ROWS, "late_right": ROWS, "errors": ROWS, "out": RESULTS}

    def __init__(
        self, left: JoinInput, right: JoinInput, how: str, name: str = "join", ports: tuple[int, ...] = (LEFT, RIGHT)
    ) -> None:
        """``ports``: which side comes in on each port."""
        if how not in HOW:
            raise Misuse(f"how={how!r}; choose one of {', '.join(HOW)}")
        self._inputs = (left, right)
        self._schemas = (physical(left.schema), physical(right.schema))
        self._keeps = HOW[how]
        self._name = name
        self._ports = ports
        self._kinds = [self._schemas[LEFT].field(key).type for key in left.keys]
        self._tally = Tally()
        self._saved: list[Saved] | None = None
        fields = [
            self._schemas[side].field(old).with_name(new) for side in (LEFT, RIGHT) for old, new in self._columns(side)
        ]
        self.schema = pa.schema(fields)
        self._clear()

    def _clear(self) -> None:
        self._index = KeyIndex(self._kinds, timed=False)
        self._expired_rows = self._forgot_at = 0
        self._keys_with_rows = 0
        """On either side; counted as they come and go, since every report says it."""
        given = zip(self._schemas, self._inputs, strict=True)
        self._sides = [Side(schema, one.keys, one.time, self._index) for schema, one in given]

    def _columns(self, side: int) -> tuple[tuple[str, str], ...]:
        return self._inputs[side].columns

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        late = {f"late_{name}": schema for name, schema in zip(SIDES, self._schemas, strict=True)}
        return {"out": self.schema, **late, "errors": DEAD_LETTERS}

    @abstractmethod
    def reach(self, side: int, times: Times) -> tuple[Times, Times]:
        """The first and the last time on the other side that rows with these times join with."""

    @abstractmethod
    def horizon(self, side: int, watermark: int) -> int:
        """Rows with times before this join with none that is not before the watermark."""

    @property
    @abstractmethod
    def holds_us(self) -> int:
        """How far behind the watermark a row that is emitted alone may lie."""

    # --- an epoch ----------------------------------------------------------------------------------------------------

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        self._settle()
        outputs: dict[str, ArrowBatch] = {}
        left, right = (self._new(side, moment, inputs, outputs) for side in (LEFT, RIGHT))
        found = [self._pairs(moment.epoch, left, right), *self._expired(moment.watermark)]
        parts = [part for part in found if part is not None and part.rows]
        if parts:
            outputs["out"] = ArrowBatch.concat(parts).by_bucket()
        return outputs

    def _new(
        self, side: int, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]], outputs: dict[str, ArrowBatch]
    ) -> _New | None:
        batches = [batch for port, batch in inputs if self._ports[port] == side and batch.rows]
        if not batches:
            return None
        batch = ArrowBatch.concat(batches)
        times = self._times(side, batch.record)
        if times.min() < max(moment.watermark_before, EARLIEST_US) or times.max() > LATEST_US:
            batch, times = self._judge(side, moment, batch, times, outputs)
        unmatchable = _any_null(batch.record, self._inputs[side].keys)
        if unmatchable is not None and not self._keeps[side]:
            self.ledger.add(ROWS, "-unmatched", int(np.count_nonzero(unmatchable)))
            batch, times, unmatchable = batch.chosen(~unmatchable), times[~unmatchable], None
        if batch.rows == 0:
            return None
        keys = [batch.record.column(name) for name in self._inputs[side].keys]
        found = self._index.find(keys, batch.rows)
        return _New(batch.record, batch.buckets, times, unmatchable, found.slots, found.touched)

    def _times(self, side: int, record: pa.RecordBatch) -> Times:
        return times_of(record.column(self._inputs[side].time))

    def _judge(
        self, side: int, moment: Moment, batch: ArrowBatch, times: Times, outputs: dict[str, ArrowBatch]
    ) -> tuple[ArrowBatch, Times]:
        """Put out late rows and those without a usable time; the others."""
        broken = (times < EARLIEST_US) | (times > LATEST_US)
        late = (times < moment.watermark_before) & ~broken
        if late.any():
            role = f"late_{SIDES[side]}"
            outputs[role] = batch.chosen(late).by_bucket()
            self._tally.add("late", outputs[role].buckets)
        if broken.any():
            letters = self._refused(side, moment, batch)
            self._tally.add("errors", letters.buckets)
            known = outputs.get("errors")
            outputs["errors"] = letters if known is None else ArrowBatch.concat([known, letters]).by_bucket()
        good = ~(late | broken)
        return batch.chosen(good), times[good]

    def _refused(self, side: int, moment: Moment, batch: ArrowBatch) -> ArrowBatch:
        """Dead letters; in canonical order, so that their positions are final."""
        ordered = batch.by_bucket()
        times = self._times(side, ordered.record)
        reason = f"no usable time in the {SIDES[side]} row's {self._inputs[side].time!r}"
        broken = np.flatnonzero((times < EARLIEST_US) | (times > LATEST_US))
        failures = [Failure(int(row), reason) for row in broken]
        return dead_letters(ordered, failures, Site(self._name, moment.epoch, self._tally))

    def _pairs(self, epoch: int, left: _New | None, right: _New | None) -> ArrowBatch | None:
        """Take the rows in; what they make with each other and with those that wait."""
        one, other = self._sides
        one.grow()
        other.grow()
        bases, waiting = (one.held, other.held), one.live + other.live
        if right is not None:
            self._keys_with_rows += self._idle_in(right.touched)
            other.add(right.record, right.slots, right.touched, right.times, epoch)
        lefts: list[Numbers] = []
        rights: list[Numbers] = []
        buckets: list[Buckets] = []
        if left is not None:
            own, met, counts = other.partners(left.slots, *self._reach(LEFT, left), bases[LEFT])
            lefts, rights, buckets = [own], [met], [np.repeat(left.buckets, counts)]
        if right is not None:
            # The epoch's left rows are not among them yet.
            own, met, counts = one.partners(right.slots, *self._reach(RIGHT, right), bases[RIGHT])
            lefts, rights, buckets = [*lefts, met], [*rights, own], [*buckets, np.repeat(right.buckets, counts)]
        if left is not None:
            self._keys_with_rows += self._idle_in(left.touched)
            one.add(left.record, left.slots, left.touched, left.times, epoch)
        self.ledger.move(ROWS, "kept", HELD_ROWS, one.live + other.live - waiting)
        self.ledger.add(RESULTS, "+matched", sum(map(len, buckets)))
        if sum(map(len, lefts)) == 0:
            return None
        return self._joined(np.concatenate(lefts), np.concatenate(rights), np.concatenate(buckets))

    def _reach(self, side: int, new: _New) -> tuple[Times, Times]:
        lows, highs = self.reach(side, new.times)
        return lows, highs if new.unmatchable is None else np.where(new.unmatchable, lows - 1, highs)

    def _joined(self, lefts: Numbers, rights: Numbers, buckets: Buckets) -> ArrowBatch:
        order = np.argsort(buckets, kind="stable")
        lefts, rights = lefts[order], rights[order]
        arrays: list[pa.Array] = []
        for side, rows in ((LEFT, lefts), (RIGHT, rights)):
            if self._keeps[side]:
                self._sides[side].match(rows)
            if self._columns(side):
                arrays += self._sides[side].take(rows, [old for old, _ in self._columns(side)]).columns
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=self.schema), buckets[order])

    # --- the end of rows -------------------------------------------------------------------------------------------

    def _expired(self, watermark: int) -> list[ArrowBatch]:
        alone = []
        for side, waiting in enumerate(self._sides):
            rows, emptied = waiting.expire(FOREVER if watermark >= FOREVER else self.horizon(side, watermark))
            self._keys_with_rows -= self._idle_in(emptied)
            self._expired_rows += len(rows)
            self.ledger.add(HELD_ROWS, "-expired", len(rows))
            if self._keeps[side]:
                single = rows[~waiting.matched[rows]]
                self.ledger.add(RESULTS, "+alone", len(single))
                if len(single):
                    alone.append(self._alone(side, single))
            if len(rows):
                waiting.drop(rows)
        if watermark >= FOREVER:
            self._forgot_at = self._index.searches
        if watermark >= FOREVER or self._expired_rows > len(self._index) + _FEW_KEYS:
            self._forget_keys()
        return alone

    def _forget_keys(self) -> None:
        """Keys that have no rows, and had none come since the last time, go. Most keys come again soon: to enter them
        anew for each row would cost more than all else."""
        slots = self._index.all()
        one, other = self._sides
        empty = slots[one.idle(slots) & other.idle(slots)]
        self._index.remove(empty[self._index.last_met(empty) <= self._forgot_at])
        self._forgot_at, self._expired_rows = self._index.searches, 0

    def _idle_in(self, slots: Slots) -> int:
        """How many of these keys have rows on neither side."""
        one, other = self._sides
        idle = slots[one.idle(slots)]
        return int(np.count_nonzero(other.idle(idle)))

    def _alone(self, side: int, rows: Numbers) -> ArrowBatch:
        """Rows of one side, key by key in lane order, as they go out without a partner."""
        slots = self._sides[side].slots(rows)
        first = np.ones(len(slots), np.bool_)
        first[1:] = slots[1:] != slots[:-1]
        ordered = self._index.ordered(slots[first])
        ranks = np.empty(self._index.capacity, np.int64)
        ranks[ordered] = np.arange(len(ordered))
        order = np.argsort(ranks[slots], kind="stable")
        return self._single(side, rows[order], self._index.buckets[slots[order]])

    def _single(self, side: int, rows: Numbers, buckets: Buckets) -> ArrowBatch:
        """Rows in the columns of the output; a right row has its own keys in those of the left."""
        record = self._sides[side].take(rows)
        given = {new: record.column(old) for old, new in self._columns(side)}
        if side == RIGHT:
            names = zip(self._inputs[LEFT].keys, self._inputs[RIGHT].keys, strict=True)
            given |= {left: record.column(right) for left, right in names}
        arrays = [given[f.name] if f.name in given else pa.nulls(len(rows), f.type) for f in self.schema]
        return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=self.schema), buckets)

    # --- state -----------------------------------------------------------------------------------------------------

    def content(self) -> pa.RecordBatch:
        """The rows that wait, in the columns of the output, with their side behind the keys."""
        self._settle()
        parts = []
        for side, waiting in enumerate(self._sides):
            rows = waiting.rows()
            times = waiting.times(waiting.take(rows))
            parts.append(self._alone(side, rows[np.lexsort((waiting.orders(rows), times, waiting.slots(rows)))]))
        both = ArrowBatch.concat(parts)
        names = pa.array(np.repeat(np.array(SIDES, object), [part.rows for part in parts]), pa.string())
        column = "side"
        while column in self.schema.names:
            column += "_"
        at = len(self._inputs[LEFT].keys)
        record = both.record.add_column(at, pa.field(column, pa.string()), names)
        return ArrowBatch(record, both.buckets).by_bucket().record

    def snapshot(self, full: bool) -> ArrowState:
        self._settle()
        tables = {name: waiting.snapshot(full) for name, waiting in zip(SIDES, self._sides, strict=True)}
        return ArrowState({**tables, COUNTERS: self._tally.snapshot(full)})

    def mostly_changed(self) -> bool:
        self._settle()
        return 2 * sum(waiting.changed for waiting in self._sides) >= sum(waiting.live for waiting in self._sides)

    def load(self, state: ArrowState) -> None:
        if self._saved is None:
            saved = [Saved(self._kinds, schema) for schema in self._schemas]
            for side, waiting in zip(saved, self._sides, strict=True):
                if waiting.live:
                    side.add(waiting.snapshot(True))
            self._clear()
            self._saved = saved
        for name, side in zip(SIDES, self._saved, strict=True):
            if name in state.tables:
                side.add(state.tables[name])
        if COUNTERS in state.tables:
            self._tally.load(state.tables[COUNTERS])

    def _settle(self) -> None:
        """All snapshots are in: put their rows where they belong."""
        if self._saved is not None:
            saved, self._saved = self._saved, None
            for waiting, side in zip(self._sides, saved, strict=True):
                waiting.restore(side)
            known = self._index.all()
            self._keys_with_rows = len(known) - self._idle_in(known)

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return {(HELD_ROWS, PENDING): held_rows(state, *SIDES)}

    def statistics(self) -> dict[str, int]:
        self._settle()
        size = self._index.size_bytes + sum(waiting.size_bytes for waiting in self._sides)
        return {"keys": self._keys_with_rows, "state_bytes": size, "late": 0, "errors": 0, **self._tally.totals()}


def _any_null(record: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null in one of these columns; None: none has."""
    flags: Any = None
    for name in names:
        column = record.column(name)
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            flags = nulls if flags is None else flags | nulls
    return flags if flags is None else np.asarray(flags)
