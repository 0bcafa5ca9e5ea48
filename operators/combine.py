"""Pre-aggregation: a sender folds the rows of one epoch, by key and window, before they travel.

What travels is one *part* for each key (and window): its key columns, the window's start, how many rows it stands for,
and what each aggregate remembers of them. The receiver merges parts as it would have folded rows. Only aggregates
whose parts merge exactly are combined (`Accumulator.exact`), so nobody can tell from a result whether, or by how many
senders, its rows were folded before. A part never holds rows of two windows, so the receiver judges lateness by the
window's start, with the same watermark, and counts the part's rows.

Where the keys of an epoch hardly come twice, folding would join nothing and parts are wider than rows: then the rows
travel as they are. Which of the two depends on the rows of that epoch alone, so it is the same at every replay; the
receiver takes both, even in one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, sqrt
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.aggregates import Spec, count
from operators.index import KeyIndex, Slots
from operators.kernels.cells import cell_slots
from operators.kernels.windows import NEAR, START
from operators.memory import Memory, is_row_count
from seep.errors import Bug
from seep.model.arrow import ROWS, ArrowBatch
from seep.model.keyform import column_of

_ROWS_AT_ONCE = 32_768
"""The passes over a stretch of rows, one for each aggregate, find it in the processor's cache."""
_KEYS_KEPT = 65_536
"""So many keys may stay in the index though they no longer come."""
_GLANCE_ROWS, _MOSTLY = 1_024, 0.9
"""So few rows, from all over the sample, will do where nearly all of them have keys of their own."""
_SAMPLE_ROWS = 8_192
_HOT_ROWS, _HOT_PARTS = 64, 16
"""A key is hot with so many rows of a sample if they are as much as one of so many partitions has of all the others."""
_FEW_CELLS = 65_536
"""An array of so many cells is small, however few the rows are."""


@dataclass(frozen=True, eq=False)
class Combine:
    """How a sender folds rows; picklable."""

    keys: tuple[str, ...]
    schema: pa.Schema
    """Of the rows."""
    aggregates: Mapping[str, Spec]
    time_column: str | None = None
    """None: not by window, or by a window that only the receiver knows."""
    size_us: int = 0
    offset_us: int = 0
    order_column: str | None = None
    """The time by which `first` and `last` choose; None: by arrival only."""


def why_not(schema: pa.Schema, aggregates: Mapping[str, Spec]) -> str:
    """Why these aggregates cannot be folded apart; empty when they can.

    >>> from operators.aggregates import total
    >>> why_not(pa.schema({"x": pa.float64()}), {"sum": total("x"), "n": count()})
    "sum = total('x') adds floats, whose result depends on the order"
    """
    for name, spec in aggregates.items():
        apart = spec.accumulator(schema).apart
        if apart:
            return f"{name} = {spec} {apart}"
    return ""


def why_not_halved(schema: pa.Schema, aggregates: Mapping[str, Spec]) -> str:
    """Why the rows of a key must not be divided between two places, though these aggregates can be folded apart.

    >>> from operators.aggregates import first
    >>> why_not_halved(pa.schema({"x": pa.int64()}), {"opened": first("x")}).partition(",")[0]
    "opened = first('x') goes by arrival where times are equal"
    """
    for name, spec in aggregates.items():
        ordered = spec.accumulator(schema).ordered
        if ordered:
            return f"{name} = {spec} {ordered}"
    return ""


def worth_folding(record: pa.RecordBatch, keys: Sequence[str]) -> bool:
    """Does a key come at least twice on average, as far as the first rows tell, or one alone so often that it would
    swamp the partition it goes to?

    >>> batch = pa.record_batch({"key": [1, 2, 3, 1, 2, 3], "other": [1, 2, 3, 4, 5, 6]})
    >>> worth_folding(batch, ["key"]), worth_folding(batch, ["key", "other"])
    (True, False)
    """
    if not keys:
        return True
    first = record.slice(0, _SAMPLE_ROWS).select(list(keys))
    glance = _kinds(first.take(pa.array(np.arange(0, first.num_rows, max(1, first.num_rows // _GLANCE_ROWS)))))
    if glance.keys_among(record.num_rows) > _MOSTLY * record.num_rows and glance.most < glance.rows / _HOT_PARTS / 2:
        return False
    sample = _kinds(first)
    often = 2 * sample.keys_among(record.num_rows) <= record.num_rows
    return often or sample.most >= max(_HOT_ROWS, sample.rows / _HOT_PARTS)


class _Kinds(NamedTuple):
    """Of some rows: how many, their different keys, and the rows of the most frequent one."""

    rows: int
    found: int
    most: int

    def keys_among(self, rows: int) -> float:
        return keys_among(rows, self.rows, self.found)


def _kinds(sample: pa.RecordBatch) -> _Kinds:
    kind = sample.schema.field(0).type
    if sample.num_columns == 1 and (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        counts = pc.value_counts(sample.column(0)).field("counts")
    else:
        table = pa.Table.from_batches([sample])
        counts = table.group_by(sample.schema.names, use_threads=False).aggregate([([], "count_all")])["count_all"]
    return _Kinds(sample.num_rows, len(counts), pc.max(counts).as_py() or 0)


def keys_among(rows: int, sampled: int, found: int) -> float:
    """How many keys so many rows have, if so many of them had so many: as if all keys came equally often. (If they do
    not, there are more rare ones, but most rows are of the others.)

    >>> round(keys_among(1_000_000, 8_192, 5_593), -3)
    10000.0
    """
    if found >= sampled or rows <= sampled:
        return rows if found >= sampled else found
    low, high = float(found), float(sampled) * sampled
    while high > 1.01 * low:
        keys = sqrt(low * high)
        low, high = (keys, high) if keys * -expm1(-sampled / keys) < found else (low, keys)
    return high * -expm1(-rows / high)


def is_folded(batch: ArrowBatch) -> bool:
    return ROWS in batch.record.schema.names


class Forms:
    """At the receiver: rows and parts of one epoch in one form."""

    def __init__(self, plan: Combine | None) -> None:
        self._plan = plan
        self._combiner: Combiner | None = None

    def join(self, batches: Sequence[ArrowBatch]) -> ArrowBatch:
        """One batch, of rows if all are rows, else of parts."""
        folded = [is_folded(batch) for batch in batches]
        if any(folded) and not all(folded):
            if self._combiner is None:
                assert self._plan is not None, "parts come only where they were asked for"
                self._combiner = Combiner(self._plan)
            fold = self._combiner.fold
            batches = [b if done else fold(b.record) for b, done in zip(batches, folded, strict=True)]
        return ArrowBatch.concat(batches)


class Combiner:
    """Folds one epoch's rows after the other. Its tables are reused; nothing of them shows in what comes out.

    A row's key is looked up in an index of the keys seen lately, which outlives the epoch; a part's slot is then found
    by (number of the key, window) in a dense array, as long as that is not much larger than the batch.
    """

    def __init__(self, plan: Combine) -> None:
        self._plan = plan
        counted = {name: spec for name, spec in plan.aggregates.items() if not is_row_count(spec)}
        self._memory = Memory(plan.schema, {**counted, ROWS: count()}, plan.order_column)
        self._kinds = [plan.schema.field(name).type for name in plan.keys]
        self._keys = KeyIndex(self._kinds, timed=False)
        self._cells = np.empty(0, np.int32)

    def fold(self, record: pa.RecordBatch) -> ArrowBatch:
        """The parts of these rows, in order of bucket, then of first appearance; buckets are those of the keys."""
        rows = record.num_rows
        keys = self._keys.find([record.column(name) for name in self._plan.keys], rows)
        slots, key_of, starts = self._parts_of(keys.slots, record)
        made = np.arange(len(key_of))
        self._memory.grow(1 << len(made).bit_length())
        self._memory.clear(made)
        for low in range(0, rows, _ROWS_AT_ONCE):
            self._memory.fold(slots[low : low + _ROWS_AT_ONCE], record.slice(low, _ROWS_AT_ONCE))
        order = np.argsort(self._keys.buckets[key_of], kind="stable")
        chosen = key_of[order]
        columns = dict(zip(self._plan.keys, self._keys.keys(chosen), strict=True))
        if starts is not None:
            columns[START] = pa.array(starts[order])
        columns[ROWS] = self._memory.accumulators[ROWS].result(order)
        parts = pa.RecordBatch.from_pydict({**columns, **self._memory.parts(order)})
        batch = ArrowBatch(parts, self._keys.buckets[chosen])
        if len(self._keys) > max(_KEYS_KEPT, 4 * len(keys.touched)):
            self._keys = KeyIndex(self._kinds, timed=False)
        return batch

    def _parts_of(self, keys: Slots, record: pa.RecordBatch) -> tuple[Slots, Slots, Slots | None]:
        """For each row its slot (in place of its key's number); for each slot the key's number and window's start."""
        plan = self._plan
        address, base, size, windows = 0, 0, 1, 1
        if plan.time_column is not None:
            column = column_of(record.column(plan.time_column))
            if column.validity:
                raise Bug(f"{plan.time_column!r} has nulls, though the flow was compiled for times that have none")
            times = record.column(plan.time_column).cast(pa.int64()).to_numpy()
            first, last = int(times.min()), int(times.max())
            address, size = column.values, plan.size_us
            base = first - (first - plan.offset_us) % size
            windows = (last - base) // size + 1
            if last - base >= NEAR or len(self._keys) * windows > max(_FEW_CELLS, 4 * len(keys)):
                return self._sparse_parts(keys, times)
        used = self._keys.numbers * windows
        if len(self._cells) < used:
            self._cells = np.empty(2 * used, np.int32)
        self._cells[:used] = -1
        most = min(len(keys), used)
        key_of, window_of = np.empty(most, np.int64), np.empty(most, np.int64)
        made = cell_slots(keys, address, size, base, windows, self._cells, key_of, window_of)
        starts = None if plan.time_column is None else base + size * window_of[:made]
        return keys, key_of[:made], starts

    def _sparse_parts(self, keys: Slots, times: Slots) -> tuple[Slots, Slots, Slots]:
        """The same by hashing: few rows over a long time, or keys that hardly come again."""
        pairs = KeyIndex([pa.int64()], timed=True)
        starts = times - (times - self._plan.offset_us) % self._plan.size_us
        found = pairs.find([pa.array(keys)], len(keys), starts)
        parts = np.empty(pairs.numbers, np.int64)
        parts[found.touched] = np.arange(len(found.touched))
        return parts[found.slots], pairs.keys(found.touched)[0].to_numpy(), pairs.times[found.touched]
