"""Aggregates over a Table: what a row no longer says is taken back before what it says now is added.

Where all aggregates can take values back exactly (counts, totals and means of integers and decimals) nothing but their
sums is kept. Otherwise the rows of each group are kept, and a group that changes is folded anew, in the order of its
rows' keys: a total of floats is then the same whichever way the rows came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.accumulators import Accumulator, Count, DecimalMean, DecimalTotal, ExactMean, ExactTotal
from operators.aggregates import Spec, count
from operators.changes import change_schema, changed_rows
from operators.groups import TABLE, Groups
from operators.index import Slots
from operators.ledger import HELD_ROWS, PENDING, RESULTS, ROWS, Accounted, Entry, held_sum
from operators.members import Members
from operators.memory import Memory
from operators.refusing import COUNTERS, Refusals
from operators.retract import SIGN, signed_schema
from operators.step import DEAD_LETTERS
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.schema import physical

ROWS_LEFT = "__members"
"""The aggregate that says whether a group has any row left."""
MEMBERS = "members"
_EXACT = (Count, ExactTotal, ExactMean, DecimalTotal, DecimalMean)


class TableAggregate(Accounted):
    """Signed rows in (`operators.retract`), the changes of the Table of aggregates out."""

    carried: Mapping[str, str] = {"out": RESULTS}

    def __init__(
        self,
        keys: Sequence[str],
        primary: Sequence[str],
        rows: pa.Schema,
        aggregates: Mapping[str, Spec],
        name: str = "aggregate",
        on_error: str = "dead_letter",
    ) -> None:
        """``primary``: the key of the Table whose rows come in; ``rows``: their columns, without the sign."""
        self._groups = Groups(keys, rows, {**aggregates, ROWS_LEFT: count()}, timed=False)
        self._scratch = Memory(rows, {**aggregates, ROWS_LEFT: count()})
        exact = all(type(accumulator) in _EXACT for accumulator in self._groups.accumulators.values())
        self._members = None if exact else Members(keys, primary, rows, self._groups.index)
        self._refusals = Refusals(name, on_error)
        self._signed = signed_schema(physical(rows))
        self.schema = change_schema(pa.schema([*self._groups.key_fields, *self._groups.fields[:-1]]))

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "errors": DEAD_LETTERS}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(self._groups.names, self._signed)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        records = [batch.record for _, batch in inputs if batch.rows]
        if not records:
            return {}
        record = pa.concat_batches(records)
        found = self._groups.find(record)
        index = self._groups.index
        slots = index.ordered(found.touched)
        was, before = ~np.isin(slots, found.fresh), self._groups.results(slots)[:-1]
        outputs: dict[str, ArrowBatch] = {}
        added = record.column(SIGN).to_numpy() > 0
        plus, minus = (record.filter(pa.array(mask)) for mask in (added, ~added))
        self.ledger.move(ROWS, "added", HELD_ROWS, plus.num_rows)
        self.ledger.add(ROWS, "-taken back", minus.num_rows)
        if self._members is None:
            self.ledger.add(HELD_ROWS, "-taken back", minus.num_rows)
            self._groups.memory.fold(found.slots[added], plus)
            self._take_back(found.slots[~added], minus)
        else:
            held = len(self._members.index)
            self._members.exchange(plus, found.slots[added], minus)
            # A row that was refused is not there to be taken back.
            self.ledger.add(HELD_ROWS, "-taken back", held + plus.num_rows - len(self._members.index))
            self._fold_anew(moment, self._members, slots, outputs)
        left = self._groups.accumulators[ROWS_LEFT].columns["seen"][slots] > 0
        shown = changed_rows(was, before, left, self._groups.results(slots)[:-1])
        chosen = slots[shown.rows]
        self.ledger.add(RESULTS, "+results", len(chosen))
        columns, buckets = [*index.keys(chosen), *shown.columns], index.buckets[chosen]
        index.remove(slots[~left])
        if len(chosen):
            outputs["out"] = ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=self.schema), buckets)
        return outputs

    def _take_back(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Fold the rows apart, and merge the sums with the other sign."""
        groups, local = np.unique(slots, return_inverse=True)
        scratch, memory = self._scratch, self._groups.memory
        own = np.arange(len(groups))
        scratch.grow(len(groups))
        scratch.clear(own)
        scratch.fold(local.astype(np.int64), rows)
        for name, accumulator in scratch.accumulators.items():
            memory.accumulators[name].merge(groups, _negative(accumulator, own))

    def _fold_anew(self, moment: Moment, members: Members, slots: Slots, outputs: dict[str, ArrowBatch]) -> None:
        """A row that a user's aggregate refuses is no member any more: it is one dead letter, not one for each time."""
        memory, index = self._groups.memory, self._groups.index
        memory.clear(slots)
        rows, owners = members.of(slots)
        homes, record = slots[owners], members.kept.take(rows)
        refused = memory.trial(homes, record)
        if refused:
            self._refusals.say(moment, ArrowBatch(record, index.buckets[homes]), refused, outputs)
            members.remove(rows[list(refused)])
            self.ledger.add(HELD_ROWS, "-refused", len(refused))
            left = np.delete(np.arange(len(rows)), list(refused))
            homes, record = homes[left], record.take(pa.array(left))
        memory.fold(homes, record)

    def content(self) -> pa.RecordBatch:
        """The aggregates of every group."""
        slots = self._groups.index.ordered(self._groups.index.all())
        fields = [*self._groups.key_fields, *self._groups.fields[:-1]]
        arrays = [*self._groups.index.keys(slots), *self._groups.results(slots)[:-1]]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def snapshot(self, full: bool) -> ArrowState:
        tables = {TABLE: self._groups.snapshot(full)}
        if self._members is not None:
            tables[MEMBERS] = self._members.snapshot(full)
        if self._groups.memory.fallible:
            tables[COUNTERS] = self._refusals.tally.snapshot(full)
        return ArrowState(tables)

    def mostly_changed(self) -> bool:
        return (self._groups if self._members is None else self._members).index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if TABLE in state.tables:
            self._groups.load(state.tables[TABLE])
        if self._members is not None and MEMBERS in state.tables:
            self._members.load(state.tables[MEMBERS])
        if COUNTERS in state.tables:
            self._refusals.tally.load(state.tables[COUNTERS])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return {(HELD_ROWS, PENDING): held_sum(state, TABLE, f"{ROWS_LEFT}.seen")}

    def statistics(self) -> dict[str, int]:
        members = 0 if self._members is None else self._members.size_bytes
        gauges = {"keys": len(self._groups.index), "state_bytes": self._groups.size_bytes + members}
        return {**gauges, **self._refusals.tally.totals()}


def _negative(accumulator: Accumulator, slots: Slots) -> dict[str, pa.Array]:
    """What the accumulator holds, with the other sign: its words are one number in two's complement."""
    columns = {"seen": -accumulator.columns["seen"][slots]}
    carry = np.ones(len(slots), np.bool_)
    for name in ("low", "high", "top"):
        if name in accumulator.columns:
            word = accumulator.columns[name][slots]
            flipped = ~word + carry.astype(word.dtype)
            columns[name], carry = flipped, carry & (flipped == 0)
    return {name: pa.array(column) for name, column in columns.items()}
