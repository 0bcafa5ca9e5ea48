"""The keys of a user's operator: their cells, timers and expiries, and how they are saved.

A key is kept as Python objects and saved as one packed value; an increment holds the keys changed since the last
snapshot. A key that has nothing to remember is dropped, so state shrinks as it empties.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

import pyarrow as pa

from operators.cells import NEVER
from operators.content import state_column
from operators.context import Entry, Timer
from operators.packing import pack, unpack
from operators.states import Declared
from seep.model.arrow import BUCKET, DELETED, KEY

_COLUMNS = pa.schema([(BUCKET, pa.uint16()), (KEY, pa.binary()), ("value", pa.binary())])


class KeyedEntries:
    """All keys of one partition of an operator."""

    def __init__(self, states: Mapping[str, Declared[Any]], keys: tuple[str, ...]) -> None:
        self._states = states
        self._key_class = namedtuple("Key", keys, rename=True) if len(keys) > 1 else None
        self._entries: dict[bytes, Entry] = {}
        self._dirty: dict[bytes, int] = {}
        """Changed since the last snapshot: identity -> bucket."""
        self._touched: dict[bytes, Entry] = {}
        self._ticked: list[Entry] = []
        # Heaps hold what may be due; the entry says whether it still is.
        self._expiries: list[tuple[int, bytes]] = []
        self._timers: dict[bool, list[tuple[int, bytes]]] = {True: [], False: []}
        self._tick = 0
        self._ticked_all = -1
        """Every key here has had this tick."""
        self._sizes: dict[bytes, int] = {}
        """As of each key's last snapshot."""
        self._size_bytes = 0

    def begin(self, now_ms: int, tick: int) -> None:
        """A new epoch: forget what has expired by its time."""
        self._tick = tick
        while self._expiries and self._expiries[0][0] <= now_ms:
            at, identity = heappop(self._expiries)
            entry = self._entries.get(identity)
            if entry is not None and entry.expires_ms == at:
                for cell in entry.cells.values():
                    cell.expire(now_ms)
                self._settle(entry)

    def of(self, identity: bytes, bucket: int, values: Callable[[], tuple[Any, ...]]) -> Entry:
        """The entry of a key that a row has touched; a new one if need be."""
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._add(identity, bucket, values())
        self._touched[identity] = entry
        return entry

    def touch(self, entry: Entry) -> None:
        self._touched[entry.identity] = entry

    def touched(self) -> list[Entry]:
        """The keys touched in this epoch, by bucket and key bytes."""
        return sorted(self._touched.values(), key=_place)

    def _add(self, identity: bytes, bucket: int, values: tuple[Any, ...]) -> Entry:
        key = self._key_class(*values) if self._key_class is not None else (values[0] if values else None)
        entry = Entry(identity, bucket, values, key)
        entry.cells = {name: state.cell(entry.keeper) for name, state in self._states.items()}
        entry.ticked = self._tick
        self._entries[identity] = entry
        return entry

    def await_timers(self, new: Iterable[tuple[Timer, Entry]]) -> None:
        for (at, by_event), entry in new:
            heappush(self._timers[by_event], (at, entry.identity))

    def next_due(self, watermark_us: int, now_us: int) -> tuple[Entry, Timer] | None:
        """Take out the first timer that is due, by (time, key bytes)."""
        while True:
            due = [
                (*self._timers[by_event][0], by_event)
                for by_event, limit in ((False, now_us), (True, watermark_us))
                if self._timers[by_event] and self._timers[by_event][0][0] <= limit
            ]
            if not due:
                return None
            at, identity, by_event = min(due)
            heappop(self._timers[by_event])
            entry = self._entries.get(identity)
            if entry is not None and (at, by_event) in entry.timers:
                entry.timers.discard((at, by_event))
                entry.keeper.changed = True
                self.touch(entry)
                return entry, (at, by_event)

    def before_tick(self) -> list[Entry]:
        """The keys with state that have not had this epoch's tick, by bucket and key bytes; it is theirs now.

        A key's first tick is the one after it came."""
        if self._ticked_all == self._tick:
            return []
        self._ticked_all = self._tick
        ticked = [entry for entry in self._entries.values() if entry.ticked < self._tick and not entry.empty()]
        for entry in ticked:
            entry.ticked = self._tick
            entry.keeper.changed = True
        self._ticked = sorted(ticked, key=_place)
        return self._ticked

    def end(self) -> None:
        """The epoch is over: note what changed, drop keys with nothing to remember."""
        for entry in [*self._touched.values(), *self._ticked]:
            self._settle(entry)
        self._touched.clear()
        self._ticked = []

    def _settle(self, entry: Entry) -> None:
        keeper = entry.keeper
        keeper.forget()
        if keeper.changed:
            keeper.changed = False
            self._dirty[entry.identity] = entry.bucket
            soonest = min((cell.soonest() for cell in entry.cells.values()), default=NEVER)
            if soonest != entry.expires_ms:
                entry.expires_ms = soonest
                if soonest < NEVER:
                    heappush(self._expiries, (soonest, entry.identity))
        if entry.empty():
            self._forget(entry.identity)

    def _forget(self, identity: bytes) -> None:
        self._entries.pop(identity, None)
        self._size_bytes -= self._sizes.pop(identity, 0)

    def _measure(self, identity: bytes, size_bytes: int) -> None:
        self._size_bytes += size_bytes - self._sizes.get(identity, 0)
        self._sizes[identity] = size_bytes

    def content(self, keys: pa.Schema) -> pa.RecordBatch:
        """Key columns, then states; by bucket and key bytes."""
        entries = sorted(self._entries.values(), key=_place)
        columns = {
            field.name: pa.array([entry.values[at] for entry in entries], field.type) for at, field in enumerate(keys)
        }
        for name, state in self._states.items():
            # A key column and a state may share a name; neither may hide the other.
            shown = f"{name}_state" if name in columns else name
            columns[shown] = state_column(state, [entry.cells[name] for entry in entries])
        return pa.RecordBatch.from_pydict(columns)

    def snapshot(self, full: bool) -> pa.RecordBatch:
        if full:
            chosen = [(entry.bucket, identity) for identity, entry in self._entries.items()]
        else:
            chosen = [(bucket, identity) for identity, bucket in self._dirty.items()]
        self._dirty.clear()
        chosen.sort()
        values = [self._pack(self._entries.get(identity)) for _, identity in chosen]
        columns = [
            pa.array([bucket for bucket, _ in chosen], pa.uint16()),
            pa.array([identity for _, identity in chosen], pa.binary()),
            pa.array(values, pa.binary()),
        ]
        table = pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)
        return table if full else table.append_column(DELETED, pa.array([v is None for v in values], pa.bool_()))

    def mostly_changed(self) -> bool:
        return 2 * len(self._dirty) >= len(self._entries)

    def _pack(self, entry: Entry | None) -> bytes | None:
        if entry is None:
            return None
        cells = {name: cell.dump() for name, cell in entry.cells.items()}
        packed = pack([list(entry.values), cells, [list(timer) for timer in sorted(entry.timers)], entry.ticked])
        self._measure(entry.identity, len(packed))
        return packed

    def load(self, table: pa.RecordBatch) -> None:
        deleted = table.column(DELETED).to_pylist() if DELETED in table.schema.names else [False] * table.num_rows
        columns = (table.column(name).to_pylist() for name in (BUCKET, KEY, "value"))
        for bucket, identity, value, gone in zip(*columns, deleted, strict=True):
            self._forget(identity)
            if not gone:
                self._restore(identity, bucket, value)
        heapify(self._expiries)
        for heap in self._timers.values():
            heapify(heap)

    def _restore(self, identity: bytes, bucket: int, packed: bytes) -> None:
        values, cells, timers, ticked = unpack(packed)
        entry = self._add(identity, bucket, tuple(values))
        for name, saved in cells.items():
            if name in entry.cells:
                entry.cells[name].restore(saved)
        entry.ticked = ticked
        entry.timers = {(at, by_event) for at, by_event in timers}
        for at, by_event in entry.timers:
            self._timers[by_event].append((at, identity))
        entry.expires_ms = min((cell.soonest() for cell in entry.cells.values()), default=NEVER)
        if entry.expires_ms < NEVER:
            self._expiries.append((entry.expires_ms, identity))
        self._measure(identity, len(packed))

    def statistics(self) -> dict[str, int]:
        return {"keys": len(self._entries), "state_bytes": self._size_bytes}


def _place(entry: Entry) -> tuple[int, bytes]:
    return entry.bucket, entry.identity
