"""The rows of groups: each is known by its group's key and its own primary key, and is found through its group.

State is cut by the group's bucket, since that is where the rows are sent. A group's rows come in the order of their
keys' bytes, never of their arrival, so what is computed from them is the same whatever they went through.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.index import KeyIndex, Slots, split_deleted, state_table
from operators.kept_rows import KeptRows, columns_of, loaded_rows, saved_columns
from operators.kernels.chains import count_members, link, members, unlink
from operators.room import grown
from seep.model.arrow import KEY
from seep.model.schema import physical

_VALUE = "value."


class Members:
    """Rows by (group, primary key). The groups are slots of the owner's index, and outlive their rows."""

    def __init__(self, group_keys: Sequence[str], keys: Sequence[str], schema: pa.Schema, groups: KeyIndex) -> None:
        self.schema = physical(schema)
        self._names = [*group_keys, *keys]
        self._group_keys = list(group_keys)
        self._groups = groups
        self.index = KeyIndex([self.schema.field(name).type for name in self._names], timed=False)
        self.kept = KeptRows(self.schema, self.index.capacity)
        self._first = np.full(groups.capacity, -1, np.int64)
        self._following = np.zeros(self.index.capacity, np.int64)
        self._previous = np.zeros(self.index.capacity, np.int64)
        self._group_of = np.zeros(self.index.capacity, np.int64)

    def exchange(self, added: pa.RecordBatch, groups: Slots, taken: pa.RecordBatch) -> tuple[Slots, Slots]:
        """Take some rows away and add others to their groups; a row in both is replaced. The slots of those added, and
        which of the others are no member any more."""
        old = self.index.look(columns_of(taken, self._names), taken.num_rows)
        found = self.index.find(columns_of(added, self._names), added.num_rows)
        self._grow()
        fresh = np.isin(found.slots, found.fresh)
        self._link(found.slots[fresh], groups[fresh])
        self.kept.put(found.slots, added.select(self.schema.names))
        left = np.flatnonzero((old >= 0) & ~np.isin(old, found.slots))
        self.remove(old[left])
        return found.slots, left

    def of(self, groups: Slots) -> tuple[Slots, npt.NDArray[np.int64]]:
        """The rows of these groups, and for each the position of its group; ordered by that, then by the row's key."""
        self._grow()
        total = count_members(groups, self._first, self._following)
        rows, owners = members(groups, self._first, self._following, total)
        place = np.empty(self.index.capacity, np.int64)
        place[rows] = owners
        ordered = self.index.ordered(rows)
        order = np.argsort(place[ordered], kind="stable")
        ordered = ordered[order]
        return ordered, place[ordered]

    def groups(self, rows: Slots) -> Slots:
        """The group of each of these rows."""
        return np.asarray(self._group_of[rows])

    def empty(self, groups: Slots) -> npt.NDArray[np.bool_]:
        """Which of these groups have no row."""
        self._grow()
        return np.asarray(self._first[groups] < 0)

    def _link(self, rows: Slots, groups: Slots) -> None:
        # An entry counts where its group is: the index put it where its own key would be.
        self.index.buckets[rows] = self._groups.buckets[groups]
        link(rows, groups, self._first, self._following, self._previous, self._group_of)

    def remove(self, rows: Slots) -> None:
        """These are no members any more; their groups stay."""
        unlink(rows, self._first, self._following, self._previous, self._group_of)
        self.index.remove(rows)
        self.kept.drop(rows)

    def _grow(self) -> None:
        capacity = self.index.capacity
        if len(self._following) < capacity:
            self.kept.grow(capacity)
            for name in ("_following", "_previous", "_group_of"):
                setattr(self, name, grown(getattr(self, name), capacity))
        if len(self._first) < self._groups.capacity:
            first = np.full(self._groups.capacity, -1, np.int64)
            first[: len(self._first)] = self._first
            self._first = first

    # --- snapshots -----------------------------------------------------------------------------------------------

    def snapshot(self, full: bool) -> pa.RecordBatch:
        def values(slots: Slots) -> dict[str, pa.Array]:
            return saved_columns(_VALUE, self.kept.take(slots))

        return state_table(self.index, full, values)

    def load(self, table: pa.RecordBatch) -> None:
        """The groups must have been loaded."""
        deleted, entries = split_deleted(table)
        gone = self.index.restore(deleted)
        self._grow()
        known = gone.touched[~np.isin(gone.touched, gone.fresh)]
        unlink(known, self._first, self._following, self._previous, self._group_of)
        self.kept.drop(self.index.forget(deleted))
        found = self.index.restore(entries.column(KEY))
        self._grow()
        rows = loaded_rows(_VALUE, entries, self.schema)
        fresh = np.isin(found.slots, found.fresh)
        groups = self._groups.look(columns_of(rows, self._group_keys), rows.num_rows)
        self._link(found.slots[fresh], groups[fresh])
        self.kept.put(found.slots, rows)

    @property
    def size_bytes(self) -> int:
        return self.index.size_bytes + self.kept.size_bytes + 3 * self._following.nbytes
