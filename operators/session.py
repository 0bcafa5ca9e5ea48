"""Sessions by key: rows that follow each other within a gap.

A row covers the time from its own to its own plus the gap; what overlaps is one session, which ends the gap after its
last row. A row may join two sessions: their aggregates are merged, those of floats exactly (`operators.reproducible`),
since when that happens depends on how epochs are cut. Lateness is a matter of the session, not of the row: late are the
rows of a session that, all rows of the epoch taken together, would have ended by the watermark.
Where a distance of the gap still joins (``inclusive``), so does a row at the very end: the watermark must have passed.

In a Table a session is identified by its start and its end, so one that grows is deleted and comes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from operators.accumulators import Refused
from operators.aggregates import Spec, maximum
from operators.emission import Revision
from operators.index import Slots
from operators.kernels.sessions import join_rows, settle
from operators.kernels.windows import BROKEN, LATE, START
from operators.ledger import RESULTS
from operators.owners import Owners
from operators.panes import unmergeable
from operators.shape import AFTER_ALL, BEFORE_ALL
from operators.windowing import Window
from seep.errors import Misuse
from seep.model.arrow import ArrowBatch
from seep.model.epoch import Moment
from seep.model.schema import TIMESTAMP

LAST = "__last"
"""What a session must remember besides its aggregates: the time of its last row."""


class _Nodes(NamedTuple):
    """Sessions of the keys that rows came for: open ones, and new ones."""

    owners: Slots
    slots: Slots
    """-1: a new one."""
    starts: Slots
    lasts: Slots
    roots: Slots
    """The node that it is a part of now."""


class SessionWindow(Window):
    """``emit="close"``: each session once. ``"update"``: the changes of the Table of open and closed sessions."""

    def __init__(
        self,
        keys: Sequence[str],
        schema: pa.Schema,
        time_column: str | None,
        gap_us: int,
        inclusive: bool,
        names: tuple[str, str],
        aggregates: Mapping[str, Spec],
        emit: str = "close",
        name: str = "window",
        period_us: int | None = None,
        on_error: str = "dead_letter",
    ) -> None:
        if time_column is None:
            raise Misuse("window: the stream has no event time, which sessions need; give its source time=")
        if gap_us <= 0:
            raise Misuse("window: the gap of sessions must be longer than zero")
        stuck = unmergeable(schema, aggregates)
        if stuck:
            raise Misuse(f"sessions merge, and {stuck} cannot; use an aggregate that can, or another window")
        hidden = {LAST: maximum(time_column)}
        aggregates = {name: spec.in_any_order() for name, spec in aggregates.items()}
        given = (keys, schema, time_column, names, aggregates, emit, period_us, name)
        super().__init__(*given, hidden=hidden, on_error=on_error)
        self._gap = gap_us
        self._reach = gap_us if inclusive else gap_us - 1
        self._owners = Owners(self._groups.index)
        self._firsts = np.empty(0, np.int64)
        """Used while rows are joined; kept, so that an epoch costs what it touches."""
        self._rehearsal = self._scratch()
        """Where users' aggregates are tried."""
        self._earliest_end = AFTER_ALL
        """No session can be closed before this."""

    @property
    def _lasts(self) -> Slots:
        """By slot."""
        found: Slots = self._groups.accumulators[LAST].columns["best"]
        return found

    def _absorb(self, moment: Moment, batch: ArrowBatch, outputs: dict[str, ArrowBatch]) -> None:
        record, groups = batch.record, self._groups
        # Pieces of one µs: the times themselves, none of them late yet.
        times = self._aligned(moment, batch, 1, 0, BEFORE_ALL)
        keys = self._owners.find([record.column(name) for name in groups.names], batch.rows)
        refused = Refused()
        while True:
            nodes, rows = self._join(keys.slots, np.where(np.isin(np.arange(batch.rows), list(refused)), BROKEN, times))
            late = nodes.lasts + self._reach < moment.watermark_before  # an open session never is
            more = self._refused(nodes, np.where(np.append(late, True)[rows], -1, rows), record)
            if not more:
                break
            refused |= more
        times[np.append(late, False)[rows]] = LATE
        self._put_aside(moment, batch, outputs, times)
        self._refusals.say(moment, batch, refused, outputs)
        touched = np.zeros(len(nodes.roots), np.bool_)
        touched[rows[rows >= 0]] = True
        roots = np.flatnonzero(touched & ~late)
        old = np.flatnonzero((nodes.slots >= 0) & touched[nodes.roots])
        before = self._seen(nodes.slots[old]) if self._updates else None
        targets = self._targets(nodes, roots)
        self._merge(nodes, old, targets)
        groups.absorb(np.append(targets, -1)[rows], record)
        if len(roots):
            self._earliest_end = min(self._earliest_end, int(nodes.lasts[roots].min()) + self._reach + 1)
        if before is not None and len(roots):
            self._say(moment, self._revision(nodes, old, roots, targets, before), outputs)
        gone = nodes.slots[old][nodes.slots[old] != targets[nodes.roots[old]]]
        self._owners.remove(gone)
        groups.remove(gone)
        self._owners.forget(keys.touched)

    def _refused(self, nodes: _Nodes, rows: Slots, record: pa.RecordBatch) -> Refused:
        """The rows that users' aggregates would refuse if they joined these roots (-1: none)."""
        memory, rehearsal = self._groups.memory, self._rehearsal
        if not memory.fallible:
            return Refused()
        touched = np.zeros(len(nodes.roots), np.bool_)
        touched[rows[rows >= 0]] = True
        old = np.flatnonzero((nodes.slots >= 0) & touched[nodes.roots])
        old = old[np.argsort(self._groups.index.times[nodes.slots[old]], kind="stable")]
        rehearsal.grow(1 << len(touched).bit_length())
        rehearsal.clear(np.arange(len(touched)))
        for name, accumulator in rehearsal.accumulators.items():
            if accumulator.fallible:
                accumulator.merge(nodes.roots[old], memory.accumulators[name].save(nodes.slots[old]))
        return rehearsal.trial(rows, record)

    def _join(self, numbers: Slots, times: Any) -> tuple[_Nodes, Slots]:
        """The sessions of these rows' keys when the rows have joined them, and the root of each row (-1: no time)."""
        owners = self._owners
        if len(self._firsts) < owners.keys.capacity:
            self._firsts = np.full(owners.keys.capacity, -2, np.int64)
        rows = np.empty(len(numbers), np.int64)
        nodes = [np.empty(len(numbers) + 16, np.int64) for _ in range(6)]
        chains = (owners.heads, owners.nexts, self._groups.index.times, self._lasts)
        at, made = 0, 0
        while True:
            state: tuple[Any, ...] = (*chains, self._firsts, *nodes, made, rows, at)
            at, made = join_rows(numbers, times, self._reach, *state)
            if at == len(numbers):
                break
            nodes = [np.concatenate([array, np.empty(len(array), np.int64)]) for array in nodes]
        self._firsts[numbers] = -2
        keys, slots, starts, lasts, parents, _ = (array[:made] for array in nodes)
        roots = np.arange(made)
        settle(roots, parents)
        settle(rows, parents)
        return _Nodes(keys, slots, starts, lasts, roots), rows

    def _targets(self, nodes: _Nodes, roots: Slots) -> Slots:
        """The entry of each root (elsewhere -1), made if need be."""
        starts = nodes.starts[roots]
        keys = self._owners.keys.keys(nodes.owners[roots])
        names = [*self._groups.names, START]
        found = self._groups.find(pa.RecordBatch.from_arrays([*keys, pa.array(starts)], names), starts)
        self._owners.add_known(found.fresh, found.slots, nodes.owners[roots])
        targets = np.full(len(nodes.roots), -1, np.int64)
        targets[roots] = found.slots
        return targets

    def _merge(self, nodes: _Nodes, old: Slots, targets: Slots) -> None:
        """Sessions that are part of another one now go into it, the earlier ones first."""
        source, target = nodes.slots[old], targets[nodes.roots[old]]
        moved = np.flatnonzero(source != target)
        moved = moved[np.argsort(self._groups.index.times[source[moved]], kind="stable")]
        for accumulator in self._groups.accumulators.values():
            accumulator.merge(target[moved], accumulator.save(source[moved]))

    # --- what comes out ------------------------------------------------------------------------------------------

    def _seen(self, slots: Slots) -> tuple[Slots, list[pa.Array]]:
        return self._lasts[slots], self._results(slots)

    def _revision(
        self, nodes: _Nodes, old: Slots, roots: Slots, targets: Slots, before: tuple[Slots, list[pa.Array]]
    ) -> Revision:
        """Sessions whose span is the same are updated; of the others the old ones are gone and the new ones there."""
        lasts, values = before
        slots, index = nodes.slots[old], self._groups.index
        same = (targets[nodes.roots[old]] == slots) & (nodes.lasts[nodes.roots[old]] == lasts)
        known = np.full(len(nodes.roots), -1, np.int64)
        known[nodes.roots[old[same]]] = np.flatnonzero(same)
        gone = np.flatnonzero(~same)
        numbers = np.concatenate([nodes.owners[roots], nodes.owners[old[gone]]])
        starts = np.concatenate([nodes.starts[roots], index.times[slots[gone]]])
        ends = np.concatenate([nodes.lasts[roots], lasts[gone]]) + self._gap
        was = np.concatenate([known[roots], gone])
        here = np.arange(len(numbers)) < len(roots)
        order = self._owners.order(numbers, starts, ends)
        olds = pa.array(was[order], mask=was[order] < 0)
        news = pa.array(order, mask=~here[order])
        places = self._owners.keys.keys(numbers[order])
        places += [pa.array(starts[order]).view(TIMESTAMP), pa.array(ends[order]).view(TIMESTAMP)]
        return Revision(
            self._owners.keys.buckets[numbers[order]],
            places,
            [array.take(olds) for array in values],
            [array.take(news) for array in self._results(targets[roots])],
            was[order] >= 0,
            here[order],
        )

    def _close(self, moment: Moment) -> ArrowBatch | None:
        limit, index = self._limit(moment), self._groups.index
        if self._earliest_end > limit:
            return None
        ends = self._lasts + self._reach + 1
        due = np.flatnonzero(index.live & (ends <= limit))
        closed = None
        if len(due) and not self._updates:
            ordered = index.ordered(due)
            closed = ArrowBatch(self._rows(ordered), index.buckets[ordered])
            self.ledger.add(RESULTS, "+results", len(due))
        self._owners.forget(self._owners.remove(due))
        self._groups.close(due)
        self._earliest_end = int(ends[index.live].min()) if len(index) else AFTER_ALL
        return closed

    def _rows(self, slots: Slots) -> pa.RecordBatch:
        starts, ends = self._groups.index.times[slots], self._lasts[slots] + self._gap
        windows = [pa.array(starts).view(TIMESTAMP), pa.array(ends).view(TIMESTAMP)]
        arrays = [*self._groups.index.keys(slots), *windows, *self._results(slots)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows_schema)

    def _content(self) -> pa.RecordBatch:
        return self._rows(self._groups.index.ordered(self._groups.index.all()))

    def _derive(self) -> None:
        self._owners.restart()
        self._earliest_end = BEFORE_ALL
