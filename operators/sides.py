"""One input of a join: its rows that may still find a partner, by key, in the order of their times.

The rows lie in `Chunks`; what is known of each (its key's slot, its order, whether it has matched, whether it is saved)
in arrays by row number; each key's rows in a lane of `operators.kernels.joins`. In a snapshot a row is an entry of
its own, identified by its key and its *order*: the epoch that it came in, and its number among the key's rows of that
epoch. That needs no counter that would have to survive, and never names two rows alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.chunks import Chunks, Numbers
from operators.index import KeyIndex, Slots, split_deleted
from operators.kept_rows import loaded_rows
from operators.kernels import joins as kernel
from operators.room import grown
from seep.errors import Misuse
from seep.model.arrow import BUCKET, DELETED, KEY, Buckets

ORDER_BITS = 24
"""An order is the epoch, then so many bits for the number inside it."""
NO_TIME = 2**63 - 1
_MATCHED = "matched"
_VALUE = "value."
_FEW_ROWS = 32
"""Of one key in one epoch: so many are put in order one by one."""
_FIRST_ROWS = 1024
_ORDER_BYTES = 8


class Side:
    """The waiting rows of one input; slots are those of the join's key index."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], time: str, index: KeyIndex) -> None:
        self.schema = schema
        self.live = 0
        self._keys = keys
        self._time = time
        self._index = index
        self._lanes = np.zeros((index.capacity, 3), np.int64)
        self._firsts = np.full(index.capacity, kernel.EMPTY, np.int64)
        self._counts = np.zeros(index.capacity, np.int64)
        self._entries = np.empty((0, 2), np.int64)
        self._used = np.zeros(1, np.int64)
        self._earliest = int(kernel.EMPTY)
        self._chunks = Chunks(schema)
        self._slots = np.zeros(_FIRST_ROWS, np.int64)
        self._orders = np.zeros(_FIRST_ROWS, np.int64)
        self.matched = np.zeros(_FIRST_ROWS, np.bool_)
        self._alive = np.zeros(_FIRST_ROWS, np.bool_)
        self._dirty = np.zeros(_FIRST_ROWS, np.bool_)
        self._saved = np.zeros(_FIRST_ROWS, np.bool_)
        self._gone: list[tuple[Buckets, pa.Array]] = []

    @property
    def held(self) -> int:
        """The number of the next row."""
        return self._chunks.held

    @property
    def size_bytes(self) -> int:
        lanes = (self._lanes, self._firsts, self._counts, self._entries)
        rows = (self._slots, self._orders, self.matched, self._alive, self._dirty, self._saved)
        return self._chunks.size_bytes + sum(array.nbytes for array in (*lanes, *rows))

    # --- rows in ---------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """The index has more slots."""
        capacity = self._index.capacity
        if len(self._counts) < capacity:
            self._counts = grown(self._counts, capacity)
            lanes = np.zeros((capacity, 3), np.int64)
            lanes[: len(self._lanes)] = self._lanes
            self._lanes = lanes
            firsts = np.full(capacity, kernel.EMPTY, np.int64)
            firsts[: len(self._firsts)] = self._firsts
            self._firsts = firsts

    def add(self, rows: pa.RecordBatch, slots: Slots, touched: Slots, times: npt.NDArray[np.int64], epoch: int) -> None:
        """New rows, in the order of their arrival."""
        if len(slots) >> ORDER_BITS:
            raise Misuse(f"join: {len(slots)} rows in one epoch are too many; let the source make smaller epochs")
        orders = np.empty(len(slots), np.int64)
        most = kernel.arrivals(slots, self._counts, epoch << ORDER_BITS, orders)
        self._enter(rows, slots, touched, times, orders, most)

    def _enter(self, rows: pa.RecordBatch, slots: Slots, touched: Slots, times: Any, orders: Any, most: int) -> None:
        """``_counts`` says how many rows each key has, ``most`` the greatest of them."""
        base = self._chunks.append(rows)
        new = len(slots)
        self._make_rows(base + new)
        self._slots[base : base + new] = slots
        self._orders[base : base + new] = orders
        self.matched[base : base + new] = False
        self._alive[base : base + new] = True
        self._dirty[base : base + new] = True
        self._saved[base : base + new] = False
        self.live += new
        if new:
            self._earliest = min(self._earliest, int(times.min()))
        in_order = most <= _FEW_ROWS or bool((times[1:] >= times[:-1]).all())
        sequence = np.arange(new) if in_order else np.argsort(times, kind="stable")
        offsets, members = np.empty(len(touched) + 1, np.int64), np.empty(new, np.int64)
        kernel.grouped(slots, sequence, touched, self._counts, offsets, members)
        at = 0
        while True:
            where = (self._lanes, self._firsts, self._entries, self._used)
            at = kernel.insert(at, touched, offsets, members, times, base, *where)
            if at == len(touched):
                return
            self._make_room(new, len(touched), np.empty(0, np.int64))

    def _make_rows(self, needed: int) -> None:
        if needed > len(self._slots):
            capacity = 1 << needed.bit_length()
            for name in ("_slots", "_orders", "matched", "_alive", "_dirty", "_saved"):
                setattr(self, name, grown(getattr(self, name), capacity))

    def _make_room(self, new: int, keys: int, numbers: Numbers) -> None:
        """Other arrays for the lanes, with room for so many new rows of so many keys, and for more."""
        size = 6 * (self.live + new) + 4 * keys + _FIRST_ROWS
        entries = np.empty((size, 2), np.int64)
        self._used[0] = kernel.repack(self._lanes, numbers, self._entries, entries)
        self._entries = entries

    # --- partners and their end --------------------------------------------------------------------------------------

    def partners(self, slots: Slots, lows: Any, highs: Any, base: int) -> tuple[Numbers, Numbers, Numbers]:
        """Rows of the other side, called ``base`` + their number, each with every row here whose time is from its low
        to its high: their numbers, those of the rows here, and how many each has found."""
        begins, counts = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
        total = kernel.partners(slots, lows, highs, self._lanes, self._entries, begins, counts)
        own, other = np.empty(total, np.int64), np.empty(total, np.int64)
        kernel.expand(begins, counts, base, self._entries, own, other)
        return own, other, counts

    def match(self, rows: Numbers) -> None:
        """These rows have a partner."""
        new = rows[~self.matched[rows]]
        self.matched[new] = True
        self._dirty[new] = True

    def expire(self, limit: int) -> tuple[Numbers, Slots]:
        """The rows with times before the limit, by key in lane order, and the keys that have none here any more. The
        rows are out of their lanes, and must be given to `drop` once they are not needed any more."""
        if limit <= self._earliest:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        due = np.flatnonzero(self._firsts < limit)
        gone = np.empty(self.live, np.int64)
        count = kernel.expire(due, limit, self._lanes, self._firsts, self._entries, gone)
        self._earliest = int(self._firsts.min())
        return gone[:count], due[self.idle(due)]

    def idle(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which keys have no row here."""
        return np.asarray(self._lanes[slots, kernel.LENGTH] == 0)

    def drop(self, rows: Numbers) -> None:
        """Forget expired rows; the next increment says that they are gone, if a snapshot ever held them."""
        saved = rows[self._saved[rows]]
        if len(saved):
            self._gone.append((self._index.buckets[self._slots[saved]], self._identities(saved)))
        self._alive[rows] = False
        self._dirty[rows] = False
        self.live -= len(rows)
        if self._chunks.held > 2 * self.live + _FIRST_ROWS:
            self._compact()

    def _compact(self) -> None:
        held = self._chunks.held
        alive = self._alive[:held]
        numbers = np.cumsum(alive) - 1
        self._make_room(0, 0, numbers)
        self._chunks.keep(alive)
        kept = np.flatnonzero(alive)
        for name in ("_slots", "_orders", "matched", "_dirty", "_saved", "_alive"):
            array = getattr(self, name)
            setattr(self, name, grown(array[kept], max(_FIRST_ROWS, 1 << len(kept).bit_length())))

    # --- looking -----------------------------------------------------------------------------------------------------

    def rows(self) -> Numbers:
        """All of them."""
        return np.flatnonzero(self._alive[: self.held])

    def slots(self, rows: Numbers) -> Slots:
        return self._slots[rows]

    def orders(self, rows: Numbers) -> npt.NDArray[np.int64]:
        return self._orders[rows]

    def take(self, rows: Numbers, columns: Any = None) -> pa.RecordBatch:
        return self._chunks.take(rows, columns)

    def times(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Of rows that have one."""
        return times_of(rows.column(self._time))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _identities(self, rows: Numbers) -> pa.Array:
        keys = self._index.identities(self._slots[rows])
        words = pa.py_buffer(self._orders[rows])
        orders = pa.Array.from_buffers(pa.binary(_ORDER_BYTES), len(rows), [None, words]).cast(pa.binary())
        return pc.binary_join_element_wise(keys, orders, pa.scalar(b"", pa.binary()))

    @property
    def changed(self) -> int:
        """How many rows the next increment must hold."""
        return int(np.count_nonzero(self._dirty[: self.held]))

    def snapshot(self, full: bool) -> pa.RecordBatch:
        alive = self._alive[: self.held]
        written = np.flatnonzero(alive if full else alive & self._dirty[: self.held])
        gone = [] if full else self._gone
        self._gone = []
        self._dirty[written] = False
        self._saved[written] = True
        taken = self._chunks.take(written)
        columns = {
            BUCKET: pa.array(self._index.buckets[self._slots[written]]),
            KEY: self._identities(written),
            _MATCHED: pa.array(self.matched[written]),
            **{_VALUE + name: column for name, column in zip(taken.schema.names, taken.columns, strict=True)},
        }
        record = pa.RecordBatch.from_pydict(columns)
        if full:
            return record
        record = record.append_column(DELETED, pa.array(np.zeros(len(written), np.bool_)))
        parts = [_deletions(buckets, keys, record.schema) for buckets, keys in gone]
        return pa.concat_batches([*parts, record]) if parts else record

    def restore(self, saved: Saved) -> None:
        """Take in what was saved; the index gets its keys."""
        orders, matched, rows = saved.entries()
        # Not as saved keys: what is saved and gone is said of rows.
        found = self._index.find([rows.column(name) for name in self._keys], rows.num_rows)
        self.grow()
        most = kernel.arrivals(found.slots, self._counts, 0, np.empty(len(orders), np.int64))
        base = self.held
        self._enter(rows, found.slots, found.touched, self.times(rows), orders, most)
        self.matched[base : self.held] = matched
        self._dirty[base : self.held] = False
        self._saved[base : self.held] = True


def times_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Event times in µs, later than any where there is none. A copy: memory that may not be written to is another type
    to the compiled loops."""
    times = column.view(pa.int64())
    return np.array(pc.fill_null(times, NO_TIME) if times.null_count else times, np.int64)


def _deletions(buckets: Buckets, keys: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    known = {BUCKET: pa.array(buckets), KEY: keys, DELETED: pa.array(np.ones(len(keys), np.bool_))}
    arrays = [known.get(field.name, pa.nulls(len(keys), field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Saved:
    """Snapshots of a side on their way in: entries that later ones replace or delete, each at its own cost."""

    def __init__(self, kinds: list[pa.DataType], schema: pa.Schema) -> None:
        self._index = KeyIndex(kinds, timed=True)
        """A row's order takes the place of a time."""
        self._chunks = Chunks(schema)
        self._positions = np.zeros(self._index.capacity, np.int64)
        self._matched = np.zeros(self._index.capacity, np.bool_)

    def add(self, table: pa.RecordBatch) -> None:
        deleted, entries = split_deleted(table)
        if len(deleted):
            self._index.forget(deleted)
        slots = self._index.restore(entries.column(KEY)).slots
        if len(self._positions) < self._index.capacity:
            self._positions = grown(self._positions, self._index.capacity)
            self._matched = grown(self._matched, self._index.capacity)
        schema = self._chunks.schema
        first = self._chunks.append(loaded_rows(_VALUE, entries, schema))
        self._positions[slots] = first + np.arange(len(slots))
        self._matched[slots] = entries.column(_MATCHED).to_numpy(zero_copy_only=False)

    def entries(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], pa.RecordBatch]:
        """Orders, flags and rows, by order."""
        slots = self._index.all()
        slots = slots[np.argsort(self._index.times[slots], kind="stable")]
        return self._index.times[slots], self._matched[slots], self._chunks.take(self._positions[slots])
