"""`TableState`: the rows a columnar operator remembers, one for each key, read and written as whole batches.

A declaration is a class attribute of a `BatchOperator`; inside `on_batch` the same name gives the `KeyedRows` of this
partition. What a call has written can be undone, so that a call that raises leaves no trace.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import KeyIndex, Slots
from operators.kernels.folds import last_rows
from operators.row_store import Note, RowStore
from seep.errors import Misuse
from seep.model.ids import BUCKETS
from seep.model.keyspace import buckets_of
from seep.model.schema import physical, schema_of

Owned = npt.NDArray[np.bool_]
"""By bucket: may a call touch its keys?"""


class TableState:
    """One row for each key: ``totals = seep.TableState({"total": int})``, then ``self.totals.get(batch)`` and ``put``.

    ``schema`` names the columns beside the key (the key's may be among them).

    >>> TableState({"total": int}).schema.names
    ['total']
    """

    def __init__(self, schema: Any) -> None:
        self.schema = physical(schema_of(schema))
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

    def __init__(self, name: str, keys: pa.Schema, values: pa.Schema) -> None:
        self._name = name
        self._keys = keys
        self.schema = pa.schema([*keys, *values])
        self._index = KeyIndex(keys.types, timed=False)
        self._store = RowStore(self._index, values)
        self._last = np.zeros(self._index.capacity, np.int64)
        self._owned: Owned = np.zeros(BUCKETS, np.bool_)
        self._notes: list[Note] = []
        self._changed: list[Slots] = []
        self._made: list[Slots] = []

    # --- for the user --------------------------------------------------------------------------------------------

    def get(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """A row for each row of ``keys`` (any batch with the key columns), in its order: the key columns, then what is
        kept for that key; nulls where nothing is."""
        columns = self._key_columns(keys, "get")
        slots = self._index.look(columns, keys.num_rows)
        self._own(slots, keys, "get")
        there = slots >= 0
        there[there] = self._store.counts[slots[there]] > 0
        rows = self._store.read(slots[there])
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return pa.RecordBatch.from_arrays([*columns, *rows.take(places).columns], schema=self.schema)

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
        latest = rows.select(self._store.schema.names).take(pa.array(self._last[found.touched]))
        self._store.write(found.touched, latest)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Forget these keys."""
        slots = self._index.look(self._key_columns(keys, "delete"), keys.num_rows)
        self._own(slots, keys, "delete")
        gone = np.unique(slots[slots >= 0])
        self._note(gone)
        self._store.drop(gone)

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
        return pa.RecordBatch.from_arrays(
            [*self._index.keys(slots), *self._store.read(slots).columns], schema=self.schema
        )

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
