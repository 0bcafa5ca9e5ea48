"""The best rows of each group of a Table: when one of them goes, or gets worse, the next best takes its place.

So all rows of a group are kept, not only the best. They are looked through again only when a row goes that may have
been among the best; else those and the rows that come are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from operators.index import Slots
from operators.ledger import HELD_ROWS, PENDING, ROWS, Entry, held_rows
from operators.members import Members
from operators.retract import SIGN, signed_schema
from operators.top import Top
from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.epoch import Moment
from seep.model.schema import physical

MEMBERS = "members"


class TableTop(Top):
    """Signed rows in (`operators.retract`), the changes of the Table of best rows out."""

    def __init__(
        self,
        keys: Sequence[str],
        primary: Sequence[str],
        rows: pa.Schema,
        n: int,
        by: Sequence[str | pl.Expr],
        descending: bool = True,
        ties: str = "number",
    ) -> None:
        """``primary``: the key of the Table whose rows come in; ``rows``: their columns, without the sign."""
        super().__init__(keys, rows, n, by, descending, ties)
        self._members = Members(keys, primary, rows, self._index)
        self._signed = signed_schema(physical(rows))

    @property
    def ports(self) -> list[tuple[Sequence[str], pa.Schema]]:
        """What comes on each port, and by which key."""
        return [(self._keys, self._signed)]

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        records = [batch.record for _, batch in inputs if batch.rows]
        if not records:
            return {}
        self._settle()
        record = pa.concat_batches(records)
        found = self._index.find([record.column(name) for name in self._keys], record.num_rows, changed=False)
        self._prepare(found.fresh)
        added = record.column(SIGN).to_numpy() > 0
        rows = record.select(self._columns)
        plus, minus = (rows.filter(pa.array(mask)) for mask in (added, ~added))
        # Who is worse than the last of the best is none of them.
        hopeful = self._ranking.coarse(rows) <= self._limits[found.slots]
        self.ledger.move(ROWS, "added", HELD_ROWS, plus.num_rows)
        for account in (ROWS, HELD_ROWS):
            self.ledger.add(account, "-taken back", minus.num_rows)
        self._members.exchange(plus, found.slots[added], minus)
        anew = np.unique(found.slots[hopeful & ~added])
        joining = np.flatnonzero(hopeful & added & ~np.isin(found.slots, anew))
        touched = self._index.ordered(np.union1d(anew, found.slots[joining]))
        output = self._ranked(touched, anew, rows.take(pa.array(joining)), found.slots[joining])
        self._index.remove(touched[self._members.empty(touched)])
        return output

    def _ranked(self, slots: Slots, anew: Slots, coming: pa.RecordBatch, homes: Slots) -> dict[str, ArrowBatch]:
        """The best of these groups: ``anew`` of all their rows, the others of the best before and those that come."""
        self._places[slots] = np.arange(len(slots))
        old, old_counts = self._store.read(slots), self._store.counts[slots]
        owners = np.repeat(slots, old_counts)
        stay = ~np.isin(owners, anew)
        members, places = self._members.of(anew)
        rows = pa.concat_batches(
            [old.select(self._columns).filter(pa.array(stay)), coming, self._members.kept.take(members)]
        )
        groups = self._places[np.concatenate([owners[stay], homes, anew[places]])]
        best = self._ranking.best(rows, [groups])
        chosen = rows.take(pa.array(best.rows))
        new = pa.RecordBatch.from_arrays([*chosen.columns, pa.array(best.ranks)], schema=self._store.schema)
        return self._change(slots, old, old_counts, new, np.bincount(best.groups, minlength=len(slots)))

    def snapshot(self, full: bool) -> ArrowState:
        return ArrowState({**super().snapshot(full).tables, MEMBERS: self._members.snapshot(full)})

    def mostly_changed(self) -> bool:
        return self._members.index.mostly_changed()

    def load(self, state: ArrowState) -> None:
        super().load(state)
        if MEMBERS in state.tables:
            self._members.load(state.tables[MEMBERS])

    def holds(self, state: ArrowState) -> Mapping[Entry, int]:
        return {(HELD_ROWS, PENDING): held_rows(state, MEMBERS)}

    def statistics(self) -> dict[str, int]:
        found = super().statistics()
        return {**found, "state_bytes": found["state_bytes"] + self._members.size_bytes}
