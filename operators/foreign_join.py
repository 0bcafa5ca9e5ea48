"""A Table joined with another by a foreign key: a column of the left names the primary key of the right.

This half runs by the foreign key: it holds the right's row and all left rows that refer to it, so a change of either
side finds what it concerns. Its answers go back by the left's primary key to a Table of each left row's latest answer.
When a left row's foreign key changes, two places answer in one epoch: the old one that the row is gone, the new one
with the new row. They are told apart by their output, ``gone`` and ``out``; the receiver takes ``gone`` first, so what
is there wins, whichever partition spoke first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.changes import change_schema
from operators.chunks import nulls
from operators.index import Slots
from operators.kept_rows import columns_of
from operators.keyed_rows import KeyedRows
from operators.ledger import RESULTS, ROWS, Accounted
from operators.members import Members
from operators.pairing import pair, without_nulls
from operators.retract import SIGN, signed_schema
from operators.table import GONE
from operators.table_lookup import deletions
from seep.errors import Misuse
from seep.model.arrow import CHANGE, ArrowBatch, ArrowState
from seep.model.epoch import Moment

RIGHT, REFERRING = "right", "referring"


class ForeignJoin(Accounted):
    """Port 0: the right Table's changes; port 1: the left's signed rows (`operators.retract`), by their foreign key."""

    carried: Mapping[str, str] = {"out": RESULTS, "gone": RESULTS}

    def __init__(
        self,
        keys: tuple[Sequence[str], str],
        inputs: tuple[pa.Schema, pa.Schema],
        primary: Sequence[str],
        how: str = "inner",
    ) -> None:
        """``keys``: the right's primary key, the left's foreign key; ``primary``: the left's primary key."""
        if how not in ("inner", "left"):
            raise Misuse(f"how={how!r}; with on= choose 'inner' or 'left': a result has the key of a left row")
        right, left = (pa.schema([f for f in given if f.name not in (CHANGE, SIGN)]) for given in inputs)
        self._pairing = pair(left, [keys[1]], right, keys[0])
        self._foreign = keys[1]
        self._inner = how == "inner"
        self._right = KeyedRows(keys[0], right, sparse=True)
        self._left = Members([keys[1]], primary, left, self._right.index)
        self.schema = self._pairing.schema.append(pa.field(GONE, pa.bool_()))

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"out": self.schema, "gone": self.schema}

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [
            (self._right.keys, change_schema(self._right.schema)),
            ([self._foreign], signed_schema(self._left.schema)),
        ]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        changes, rows = ([batch for port, batch in inputs if port == side and batch.rows] for side in (0, 1))
        touched = self._turn(pa.concat_batches([batch.record for batch in changes])) if changes else _NO_SLOTS
        concerned, groups, gone = self._refer(ArrowBatch.concat(rows)) if rows else (_NO_SLOTS, _NO_SLOTS, [])
        concerned = self._left.index.ordered(np.union1d(concerned, self._left.of(touched)[0]))
        matched, lefts, rights = self._joined(concerned)
        stays = matched if self._inner else np.ones(len(concerned), np.bool_)
        buckets = self._left.index.buckets[concerned]
        self.ledger.add(RESULTS, "+results", len(concerned) + sum(one.rows for one in gone))
        outputs: dict[str, ArrowBatch] = {}
        if stays.any():
            chosen = pa.array(stays)
            outputs["out"] = self._marked(lefts.filter(chosen), rights.filter(chosen), False, buckets[stays])
        if not stays.all():
            gone = [*gone, self._without_right(lefts.filter(pa.array(~stays)), buckets[~stays])]
        if gone:
            outputs["gone"] = ArrowBatch.concat(gone).by_bucket()
        touched = np.union1d(touched, groups)
        self._right.remove(touched[self._left.empty(touched) & ~self._right.kept.has(touched)])
        return outputs

    def _turn(self, changes: pa.RecordBatch) -> Slots:
        """Apply the right's changes: the groups they concern."""
        slots = self._right.find(changes).slots
        there = ~deletions(changes)
        self.ledger.add(ROWS, "-applied", len(slots))
        self._right.kept.drop(slots[~there])
        self._right.put(slots[there], changes.filter(pa.array(there)).select(self._right.schema.names))
        return slots

    def _refer(self, batch: ArrowBatch) -> tuple[Slots, Slots, list[ArrowBatch]]:
        """Apply the left's signed rows: the members that came, the groups of all, what to say of those that went."""
        record = batch.record
        groups = self._right.index.find([record.column(self._foreign)], batch.rows).slots
        self._right.kept.grow(self._right.index.capacity)
        plus = record.column(SIGN).to_numpy() > 0
        taken = batch.chosen(~plus)
        self.ledger.add(ROWS, "-applied", int(np.count_nonzero(plus)) + taken.rows)
        added, left = self._left.exchange(record.filter(pa.array(plus)), groups[plus], taken.record)
        gone = taken.chosen(left)
        return added, groups, [self._without_right(gone.record, gone.buckets)] if gone.rows else []

    def _joined(self, slots: Slots) -> tuple[npt.NDArray[np.bool_], pa.RecordBatch, pa.RecordBatch]:
        """Left rows, the right ones that belong to them, and which have one."""
        lefts = self._left.kept.take(slots)
        keys = [lefts.column(self._foreign)]
        groups = np.where(without_nulls(keys, len(slots)), self._left.groups(slots), -1)
        return self._right.kept.has(groups), lefts, self._right.kept.take(groups)

    def _marked(
        self, lefts: pa.RecordBatch, rights: pa.RecordBatch, gone: bool, buckets: npt.NDArray[np.uint16]
    ) -> ArrowBatch:
        columns = columns_of(lefts, self._pairing.left.names) + columns_of(rights, self._pairing.right_values)
        flags = pa.array(np.full(len(buckets), gone))
        return ArrowBatch(pa.RecordBatch.from_arrays([*columns, flags], schema=self.schema), buckets)

    def _without_right(self, lefts: pa.RecordBatch, buckets: npt.NDArray[np.uint16]) -> ArrowBatch:
        return self._marked(lefts, nulls(self._right.schema, len(buckets)), True, buckets)

    def content(self) -> pa.RecordBatch:
        """The joined rows."""
        matched, lefts, rights = self._joined(self._left.index.ordered(self._left.index.all()))
        columns = columns_of(lefts, self._pairing.left.names) + columns_of(rights, self._pairing.right_values)
        record = pa.RecordBatch.from_arrays(columns, schema=self._pairing.schema)
        return record.filter(pa.array(matched)) if self._inner else record

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({RIGHT: self._right.snapshot(full), REFERRING: self._left.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._right.index.mostly_changed() and self._left.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        if RIGHT in state.tables:
            self._right.load(state.tables[RIGHT])
        if REFERRING in state.tables:
            self._left.load(state.tables[REFERRING])

    def statistics(self) -> dict[str, int]:
        found = self._right.statistics()
        return {**found, "state_bytes": found["state_bytes"] + self._left.size_bytes}


_NO_SLOTS = np.empty(0, np.int64)
