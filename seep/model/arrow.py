"""Batches and state as Arrow columns: the form workers compute on, send and save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seep.model.hashing import PRIME_5, fold_fixed, fold_variable, sum_digests
from seep.model.ids import EVERYTHING, GROUP_BUCKETS, KeyRange
from seep.model.keyform import column_of

Buckets = npt.NDArray[np.uint16]

BUCKET = "__bucket"
"""State tables carry each entry's bucket in this column (uint16) ..."""
KEY = "__key"
"""... a key that identifies the entry inside its table in this one (binary) ..."""
DELETED = "__deleted"
"""... and, in increments, whether the entry is gone (bool)."""

REPLICATED = "*"
"""State tables whose name begins with this are the same in every partition: they are never cut by key range."""

ROWS = "__rows"
"""Rows that were folded together before they travelled say in this column of how many each is made (int64)."""

SAMPLE_ROWS = 8_192
"""Of a larger batch only about so many rows are looked at to see where the load is."""

CHANGE = "change"
"""The last column of a Table's change stream (string), with one of these values."""
INSERT, UPDATE, DELETE = "insert", "update", "delete"


@dataclass(frozen=True)
class ArrowBatch:
    """A RecordBatch and one bucket for each row.

    What the bucket means depends on the side: on an edge it is the bucket the row goes to; out of an operator it is
    the bucket of the key the row came from.
    """

    record: pa.RecordBatch
    buckets: Buckets
    _sorted: list[ArrowBatch] = field(default_factory=list, compare=False, repr=False)
    """What `part` and `digest` made of this batch: it never changes, so once is enough."""
    _known: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rows(self) -> int:
        return int(self.record.num_rows)

    @property
    def weights(self) -> npt.NDArray[np.int64] | None:
        """Of how many rows of the flow each row is made; None: of itself."""
        at = self.record.schema.get_field_index(ROWS)
        return None if at < 0 else np.asarray(self.record.column(at).to_numpy())

    @property
    def weight(self) -> int:
        weights = self.weights
        return self.rows if weights is None else int(weights.sum())

    @property
    def size_bytes(self) -> int:
        found = self._known.get("size")
        if found is None:
            found = self._known["size"] = int(self.record.nbytes) + self.buckets.nbytes
        return found

    def part(self, key_range: KeyRange) -> ArrowBatch:
        if key_range == EVERYTHING or self.rows == 0:
            return self
        if not self._sorted:
            self._sorted.append(self.by_bucket())
        ordered = self._sorted[0]
        low, high = np.searchsorted(ordered.buckets, [key_range.low, key_range.high])
        return ArrowBatch(ordered.record.slice(low, high - low), ordered.buckets[low:high])

    def by_bucket(self) -> ArrowBatch:
        """The rows ordered by bucket, rows of one bucket in the order they are in."""
        buckets = self.buckets
        if self.rows < 2 or bool((buckets[1:] >= buckets[:-1]).all()):
            return self
        order = np.argsort(buckets, kind="stable")
        return ArrowBatch(self.record.take(pa.array(order)), buckets[order])

    def chosen(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> ArrowBatch:
        """The rows at these positions, or those a mask marks."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return ArrowBatch(self.record.take(pa.array(rows)), self.buckets[rows])

    def pieces(self, limit_rows: int) -> Sequence[ArrowBatch]:
        """The same rows in batches of at most so many; slices, so nothing is copied."""
        if self.rows <= limit_rows:
            return (self,)
        return [
            ArrowBatch(self.record.slice(at, limit_rows), self.buckets[at : at + limit_rows])
            for at in range(0, self.rows, limit_rows)
        ]

    def by_group(self) -> dict[int, int]:
        step = 1 + self.rows // SAMPLE_ROWS
        counts = np.bincount(self.buckets[::step] // np.uint16(GROUP_BUCKETS))
        groups = np.flatnonzero(counts)
        return dict(zip(groups.tolist(), (counts[groups] * step).tolist(), strict=True))

    def fullest(self) -> tuple[int, float]:
        sample = self.buckets[:: 1 + self.rows // SAMPLE_ROWS]
        counts = np.bincount(sample)
        bucket = int(counts.argmax())
        return bucket, float(counts[bucket]) / len(sample)

    def digest(self) -> int:
        """Made of the rows' values, not of their buffers: slices, null slots and dictionaries do not show."""
        if self.rows == 0:
            return 0
        if "digest" in self._known:
            return self._known["digest"]
        self._known["digest"] = int(sum_digests(row_digests(self.record)))
        return self._known["digest"]

    @staticmethod
    def concat(batches: Iterable[ArrowBatch]) -> ArrowBatch:
        """One batch after the other; at least one is needed, for the schema."""
        parts = list(batches)
        if len(parts) == 1:
            return parts[0]
        record = pa.concat_batches([p.record for p in parts])
        digests = [p._known["digest"] for p in parts if "digest" in p._known]
        known = {"digest": sum(digests) % 2**64} if len(digests) == len(parts) else {}
        return ArrowBatch(record, np.concatenate([p.buckets for p in parts]), _known=known)


def row_digests(record: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Of each row: made of its values, column after column."""
    digests = np.full(record.num_rows, PRIME_5, np.uint64)
    for array in record.columns:
        shape = column_of(array)
        if shape.width < 0:
            fold_variable(digests, shape.starts, shape.values, shape.validity, shape.bit)
        elif shape.width > 0:
            fold_fixed(digests, shape.values, shape.width, shape.validity, shape.bit)
    return digests


@dataclass(frozen=True)
class ArrowState:
    """Named tables, each with the columns BUCKET and KEY (and DELETED in an increment)."""

    tables: Mapping[str, pa.RecordBatch]

    @property
    def size_bytes(self) -> int:
        return sum(int(t.nbytes) for t in self.tables.values())

    def part(self, key_range: KeyRange) -> ArrowState:
        if key_range == EVERYTHING:
            return self
        return ArrowState(
            {n: table if n.startswith(REPLICATED) else _part(table, key_range) for n, table in self.tables.items()}
        )

    def cut(self, ranges: Sequence[KeyRange]) -> Iterator[ArrowState]:
        """The entries of each of these ranges (ascending) in turn, ordered by bucket, those of one bucket in the order
        they are in. What is replicated is in none of them."""
        tables = {name: _Sorted(table) for name, table in self.tables.items() if not name.startswith(REPLICATED)}
        for key_range in ranges:
            yield ArrowState({name: table.part(key_range) for name, table in tables.items()})

    def common(self) -> ArrowState:
        """What is replicated; of every other table no entry, only its columns."""
        return ArrowState({n: t if n.startswith(REPLICATED) else t.slice(0, 0) for n, t in self.tables.items()})

    @property
    def rows(self) -> int:
        return sum(int(table.num_rows) for table in self.tables.values())


class _Sorted:
    """A table that is asked for one range of buckets after the other."""

    def __init__(self, table: pa.RecordBatch) -> None:
        self.table = table
        buckets = table.column(BUCKET).to_numpy()
        self.order: npt.NDArray[np.int64] | None = None
        if len(buckets) > 1 and not bool((buckets[1:] >= buckets[:-1]).all()):
            self.order = np.argsort(buckets, kind="stable")
            buckets = buckets[self.order]
        self.buckets = buckets

    def part(self, key_range: KeyRange) -> pa.RecordBatch:
        low, high = np.searchsorted(self.buckets, [key_range.low, key_range.high])
        if self.order is None:
            return self.table.slice(low, high - low)
        return self.table.take(pa.array(self.order[low:high]))


def joined(states: Sequence[ArrowState]) -> ArrowState:
    """The entries of all of these, one state after the other."""
    names = dict.fromkeys(name for state in states for name in state.tables)
    parts = {name: [s.tables[name] for s in states if name in s.tables] for name in names}
    return ArrowState({n: tables[0] if len(tables) == 1 else pa.concat_batches(tables) for n, tables in parts.items()})


def compact(chain: Sequence[ArrowState]) -> ArrowState:
    """A full state and its increments (oldest first) as one full state, by column operations only.

    As in a dict, a later entry of a key takes the place of the earlier one; one that was deleted and came back
    stands at the end.
    """
    names = dict.fromkeys(name for state in chain for name in state.tables)
    return ArrowState({name: _compact([s.tables[name] for s in chain if name in s.tables]) for name in names})


def _compact(versions: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(versions) == 1 and DELETED not in versions[0].schema.names:
        return versions[0]
    if len(versions) > 1 and DELETED not in versions[0].schema.names:
        return _changed(versions[0], pa.concat_batches([_with_deleted(version) for version in versions[1:]]))
    table = pa.concat_batches([_with_deleted(version) for version in versions])
    codes = table.column(KEY).dictionary_encode().indices.to_numpy()
    kept = _latest(codes, table.column(DELETED).to_numpy(zero_copy_only=False))
    return table.drop_columns([DELETED]).take(pa.array(kept))


def _changed(full: pa.RecordBatch, later: pa.RecordBatch) -> pa.RecordBatch:
    """The same, when the first is full: its entries, which may be very many, are only looked up among those of the
    increments, which are few."""
    encoded = later.column(KEY).dictionary_encode()
    codes, deleted = encoded.indices.to_numpy(), later.column(DELETED).to_numpy(zero_copy_only=False)
    alive = _latest(codes, deleted)
    found = pc.index_in(full.column(KEY), value_set=encoded.dictionary)
    hit = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    was = found.take(pa.array(hit)).to_numpy()
    gone = np.zeros(len(encoded.dictionary), np.bool_)
    gone[codes[deleted]] = True
    place = np.full(len(encoded.dictionary), -1, np.int64)
    place[codes[alive]] = alive + full.num_rows
    order = np.arange(full.num_rows)
    order[hit] = np.where(gone[was], -1, place[was])
    # What was deleted and came back stands at the end, like what is new.
    stays = np.zeros(len(encoded.dictionary), np.bool_)
    stays[was] = ~gone[was]
    end = alive[~stays[codes[alive]]] + full.num_rows
    both = pa.concat_batches([full, later.drop_columns([DELETED]).select(full.schema.names)])
    return both.take(pa.array(np.concatenate([order[order >= 0], end])))


def _latest(codes: npt.NDArray[np.int32], deleted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The rows to keep: an entry stands where its key first appeared after its last deletion, with the values of its
    last appearance. (Where a place is assigned to more than once, the last assignment counts.)"""
    rows = np.arange(len(codes))
    last_gone = np.full(len(codes), -1)
    last_gone[codes[deleted]] = rows[deleted]
    kept = rows[rows > last_gone[codes]]
    codes = codes[kept]
    first, last = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    first[codes[::-1]] = kept[::-1]
    last[codes] = kept
    found: npt.NDArray[np.int64] = last[codes[kept == first[codes]]]
    return found


def _with_deleted(table: pa.RecordBatch) -> pa.RecordBatch:
    if DELETED in table.schema.names:
        names = [name for name in table.schema.names if name != DELETED]
        return pa.RecordBatch.from_arrays(
            [table.column(name) for name in [*names, DELETED]],
            schema=pa.schema([*(table.schema.field(n) for n in names), pa.field(DELETED, pa.bool_())]),
        )
    flags = pa.array(np.zeros(table.num_rows, np.bool_))
    schema = pa.schema([*table.schema, pa.field(DELETED, pa.bool_())])
    return pa.RecordBatch.from_arrays([*table.columns, flags], schema=schema)


def _part(table: pa.RecordBatch, key_range: KeyRange) -> pa.RecordBatch:
    buckets = table.column(BUCKET).to_numpy()
    if len(buckets) and key_range.low <= buckets.min() and buckets.max() < key_range.high:
        return table  # cut already, as when only a part was read
    return table.filter(pa.array((buckets >= key_range.low) & (buckets < key_range.high)))
