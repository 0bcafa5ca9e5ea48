"""`TableState`: the rows a columnar operator remembers, one for each key, read and written as whole batches.

A declaration is a class attribute of a `BatchOperator`; inside `on_batch` the same name gives the `KeyedRows` of this
partition. What a call has written can be undone, so that a call that raises leaves no trace.

With a time to live each row carries the epoch time at which it expires, as a hidden column: it is undone, saved, cut
and merged with the row.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.cells import NEVER
from operators.expiry import Expiries
from operators.index import KeyIndex, Slots
from operators.kernels.folds import last_rows
from operators.row_store import Note, RowStore
from operators.states import ttl_of
from seep.errors import Misuse
from seep.model.ids import BUCKETS
from seep.model.keyspace import buckets_of
from seep.model.schema import physical, schema_of

Owned = npt.NDArray[np.bool_]
"""By bucket: may a call touch its keys?"""

_EXPIRES = "__expires_ms"


class TableState:
    """One row for each key: ``totals = seep.TableState({"total": int})``, then ``self.totals.get(batch)`` and ``put``.

    ``schema`` names the columns beside the key (the key's may be among them). ``ttl``: a row is forgotten that long
    after it was last put, by the time of epochs.

    >>> TableState({"total": int}, ttl="1h").schema.names
    ['total']
    """

    def __init__(self, schema: Any, ttl: str | timedelta | None = None) -> None:
        self.schema = physical(schema_of(schema))
        self.ttl_ms = ttl_of(ttl)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> TableState: ...
    @overload
    def __get__(self, instance: object, owner: type) -> KeyedRows: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        tables = instance.__dict__.get("_tables")
        if tables is None:
            raise AttributeError(f"state {self.name!r} belongs to keys: use it inside on_batch")
        return tables[self.name]

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"state {self.name!r} cannot be replaced; use its put and delete")

    def values(self, keys: pa.Schema) -> pa.Schema:
        """The columns beside these key columns."""
        for field in keys:
            at = self.schema.get_field_index(field.name)
            if at >= 0 and self.schema.field(at).type != field.type:
                kind = self.schema.field(at).type
                raise Misuse(f"state {self.name!r}: {field.name!r} is a {kind}, but as a key it is a {field.type}")
        fields = [field for field in self.schema if field.name not in keys.names]
        if not fields:
            raise Misuse(f"state {self.name!r} has no column beside the key; give it one")
        return pa.schema(fields)


class KeyedRows:
    """The rows of a `TableState` in one partition. ``keys`` are columns of the batches handed over, by name."""

    def __init__(self, name: str, keys: pa.Schema, values: pa.Schema, ttl_ms: int = NEVER) -> None:
        self._name = name
        self._keys = keys
        self._ttl_ms = ttl_ms if ttl_ms < NEVER else None
        self.schema = pa.schema([*keys, *values])
        self._index = KeyIndex(keys.types, timed=False)
        stored = values if self._ttl_ms is None else values.append(pa.field(_EXPIRES, pa.int64()))
        self._store = RowStore(self._index, stored)
        self._expiries = Expiries()
        self._loaded = False
        self._now_ms = 0
        self._last = np.zeros(self._index.capacity, np.int64)
        self._owned: Owned = np.zeros(BUCKETS, np.bool_)
        self._notes: list[Note] = []
        self._changed: list[Slots] = []
        self._made: list[Slots] = []

    # --- for the user --------------------------------------------------------------------------------------------

    def get(self, keys: pa.RecordBatch | pa.Array) -> pa.RecordBatch:
        """A row for each row of ``keys`` (any batch with the key columns; of one key column, its array will do), in its
        order: the key columns, then what is kept for that key; nulls where nothing is."""
        keys = self._batch_of(keys)
        columns = self._key_columns(keys, "get")
        slots = self._index.look(columns, keys.num_rows)
        self._own(slots, keys, "get")
        there = slots >= 0
        there[there] = self._store.counts[slots[there]] > 0
        rows = self._values(slots[there])
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return pa.RecordBatch.from_arrays([*columns, *rows.take(places).columns], schema=self.schema)

    def _values(self, slots: Slots) -> pa.RecordBatch:
        """The rows of these entries, which have one, without what the user does not see."""
        return self._store.read_last(slots, self.schema.names[len(self._keys) :])

    def put(self, batch: pa.RecordBatch) -> None:
        """Keep these rows: the key columns and all columns of the state. Of several rows of one key, the last."""
        rows = fitted(batch, self.schema, f"{self._name}.put")
        found = self._index.find([rows.column(name) for name in self._keys.names], rows.num_rows, changed=False)
        self._made.append(found.fresh)
        self._store.prepare(found.fresh)
        self._own(found.slots, rows, "put")
        if len(self._last) < self._index.capacity:
            self._last = np.zeros(self._index.capacity, np.int64)
        last_rows(found.slots, self._last)
        self._note(found.touched)
        latest = rows.select(self.schema.names[len(self._keys) :]).take(pa.array(self._last[found.touched]))
        if self._ttl_ms is not None:
            until = pa.array(np.full(latest.num_rows, self._now_ms + self._ttl_ms))
            latest = latest.append_column(_EXPIRES, until)
        self._store.write(found.touched, latest)

    def delete(self, keys: pa.RecordBatch | pa.Array) -> None:
        """Forget these keys."""
        keys = self._batch_of(keys)
        slots = self._index.look(self._key_columns(keys, "delete"), keys.num_rows)
        self._own(slots, keys, "delete")
        gone = np.unique(slots[slots >= 0])
        self._note(gone)
        self._store.drop(gone)

    def _batch_of(self, keys: pa.RecordBatch | pa.Array) -> pa.RecordBatch:
        if isinstance(keys, pa.Array) and len(self._keys.names) == 1:
            return pa.RecordBatch.from_arrays([keys], self._keys.names)
        return keys

    def _key_columns(self, batch: pa.RecordBatch, verb: str) -> list[pa.Array]:
        if not isinstance(batch, pa.RecordBatch):
            raise Misuse(f"{self._name}.{verb}: give a pyarrow.RecordBatch, not {type(batch).__name__}")
        named = [name for name in self._keys.names if name in batch.schema.names]
        return fitted(batch.select(named), self._keys, f"{self._name}.{verb}").columns if self._keys.names else []

    def _own(self, slots: Slots, rows: pa.RecordBatch, verb: str) -> None:
        """Refuse keys that are not in the batch handed over: they may live in another partition."""
        known = slots >= 0
        ours = bool(self._owned[self._index.buckets[slots[known]]].all())
        if ours and not known.all():
            ours = bool(self._owned[buckets_of(rows.filter(pa.array(~known)), self._keys.names)].all())
        if not ours:
            raise Misuse(f"{self._name}.{verb}: a key is not in this batch; use only keys of the rows handed over")

    # --- for the operator ----------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """An epoch begins: forget what has expired by its time."""
        self._now_ms = now_ms
        if self._ttl_ms is None:
            return
        if self._loaded:  # once for all increments of a restore
            everything = self._index.all()
            self._expiries.replace(everything, self._until(everything))
            self._loaded = False
        slots = self._expiries.due(now_ms)
        slots = slots[self._index.live[slots]]  # what was deleted since is in the heap too
        gone = slots[self._until(slots) <= now_ms]
        self._store.drop(gone)
        self._changed.append(gone)

    def _until(self, slots: Slots) -> npt.NDArray[np.int64]:
        return np.asarray(self._store.read_last(slots, [_EXPIRES]).column(0).to_numpy())

    def begin(self, owned: Owned) -> None:
        """A call begins: what it does can be undone."""
        self._owned = owned
        self._notes.clear()

    def undo(self) -> None:
        for note in reversed(self._notes):
            self._store.undo(note)
        self._notes.clear()

    def end(self) -> None:
        """The epoch is over: note what changed, forget keys without a row."""
        if self._made or self._changed:
            slots = np.unique(np.concatenate([*self._made, *self._changed]))
            there = self._store.counts[slots] > 0
            self._index.mark(slots[there])
            self._index.remove(slots[~there])
            if self._ttl_ms is not None:
                self._expiries.schedule(self._now_ms + self._ttl_ms, slots[there])
        self._made.clear()
        self._changed.clear()
        self._notes.clear()
        self._store.tidy()

    def _note(self, slots: Slots) -> None:
        self._notes.append(self._store.note(slots))
        self._changed.append(slots)

    def all(self) -> pa.RecordBatch:
        """Every row, in canonical order."""
        slots = self._index.ordered(self._index.all())
        return pa.RecordBatch.from_arrays([*self._index.keys(slots), *self._values(slots).columns], schema=self.schema)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size_bytes(self) -> int:
        return int(self._index.size_bytes + self._store.size_bytes)

    def mostly_changed(self) -> bool:
        return self._index.mostly_changed()

    def snapshot(self, full: bool) -> pa.RecordBatch:
        return self._store.snapshot(full)

    def load(self, table: pa.RecordBatch) -> None:
        self._store.load(table)
        self._loaded = True


def fitted(record: Any, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """A user's batch with exactly these columns, by name, in these types.

    >>> fitted(pa.record_batch({"b": [1], "a": ["x"]}), pa.schema({"a": pa.string(), "b": pa.int32()}), "put").schema
    a: string
    b: int32
    """
    if not isinstance(record, pa.RecordBatch):
        raise Misuse(f"{what}: give a pyarrow.RecordBatch, not {type(record).__name__}")
    if sorted(record.schema.names) != sorted(schema.names):
        given, wanted = ", ".join(record.schema.names), ", ".join(schema.names)
        raise Misuse(f"{what}: the batch has the columns {given}; give exactly {wanted}")
    arrays = [record.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
