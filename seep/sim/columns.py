"""The same flows on Arrow columns: every message through its wire form, every checkpoint, record and journal through
the codec, long chains folded as a directory store folds them.

The operators are the light ones, behind a thin coat: what is tried here is the form of the data, not the operators.
A flipped bit is a real one, so that the checksum must find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from seep.model.arrow import BUCKET, DELETED, KEY, REPLICATED, ArrowBatch, ArrowState
from seep.model.care import CAREFREE
from seep.model.epoch import Moment
from seep.model.ids import KeyRange, PartitionId
from seep.partition.contract import Graph, Intake, Logic, Node, Outlet, Reading, Upgrade
from seep.protocol.effects import Append, PutCheckpoint, StoreReply, SwapJournal
from seep.protocol.messages import Message, Plan
from seep.protocol.wire import decode, decode_journal, encode, encode_journal
from seep.sim.light import EVERYWHERE, LightBatch, LightState
from seep.sim.store import SimStore, Undo
from seep.state.checkpoint import Checkpoint
from seep.state.codec import RECORD, DamagedError, decode_value, encode_value
from seep.state.folding import fold
from seep.state.saved import decode_checkpoint, encode_checkpoint

JOB_KEY = b"a key for the simulated job only"
FOLD_AFTER = 3
"""A chain as long as this is folded into a full checkpoint."""
ROWS = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.int64())])
ENTRIES = "entries"
SHARED = f"{REPLICATED}{ENTRIES}"
VALUE = "value"


def in_columns(graph: Graph) -> Graph:
    """The graph with every node in its coat."""
    return Graph({name: with_fields(node, make=_Coat(node)) for name, node in graph.nodes.items()}, graph.edges)


def upgrade_in_columns(upgrade: Upgrade) -> Upgrade:
    def fit(state: ArrowState, now_ms: int) -> ArrowState:
        tables = {}
        for name, table in state.tables.items():
            columns = (table.column(column).to_pylist() for column in (BUCKET, KEY, VALUE))
            entries = [(bucket, _unpack(key), _unpack(value)) for bucket, key, value in zip(*columns, strict=True)]
            tables[name] = _table(upgrade.fit(LightState(tuple(entries)), now_ms).entries, full=True)
        return ArrowState(tables)

    return Upgrade(with_fields(upgrade.node, make=_Coat(upgrade.node)), fit)


class _Coat:
    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self) -> Any:
        coats = {"source": ColumnIntake, "operator": ColumnLogic, "sink": ColumnOutlet}
        return coats[self.node.kind](self.node.make())


def columns_of(batch: LightBatch) -> ArrowBatch:
    buckets, rows = zip(*batch.items, strict=True)
    arrays = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    return ArrowBatch(pa.RecordBatch.from_arrays(arrays, schema=ROWS), np.array(buckets, np.uint16))


def rows_of(batch: ArrowBatch) -> LightBatch:
    columns = [column.to_pylist() for column in batch.record.columns]
    return LightBatch(tuple(zip(batch.buckets.tolist(), zip(*columns, strict=True), strict=True)))


def _light(inputs: Sequence[tuple[int, Any]]) -> list[tuple[int, LightBatch]]:
    return [(port, rows_of(batch)) for port, batch in inputs]


class ColumnIntake:
    def __init__(self, inner: Intake) -> None:
        self.inner = inner
        self.epoch, self.care = 0, CAREFREE
        self.splits, self.lateness_us, self.idle_ms = inner.splits, inner.lateness_us, inner.idle_ms
        self.appeared = inner.appeared  # type: ignore[attr-defined]

    @property
    def grows(self) -> bool:
        return bool(self.inner.grows)  # type: ignore[attr-defined]

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        self.inner.epoch, self.inner.care = self.epoch, self.care
        reading = self.inner.read(split, position, until, limit_rows, now_ms)
        if reading is None:
            return None
        outputs = {name: columns_of(batch) for name, batch in reading.outputs.items() if isinstance(batch, LightBatch)}
        return with_fields(reading, outputs=outputs)


class ColumnLogic:
    def __init__(self, inner: Logic) -> None:
        self.inner = inner
        self.care = CAREFREE

    def take(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> dict[str, ArrowBatch]:
        self.inner.care = self.care
        outputs = self.inner.take(moment, _light(inputs))
        return {name: columns_of(batch) for name, batch in outputs.items() if isinstance(batch, LightBatch)}

    def snapshot(self, full: bool) -> ArrowState:
        state = self.inner.snapshot(full)
        assert isinstance(state, LightState)
        apart = [entry for entry in state.entries if entry[0] != EVERYWHERE]
        shared = [(0, key, value) for bucket, key, value in state.entries if bucket == EVERYWHERE]
        return ArrowState({ENTRIES: _table(apart, full), SHARED: _table(shared, full)})

    def mostly_changed(self) -> bool:
        return self.inner.mostly_changed()

    def load(self, state: ArrowState) -> None:
        for name in (ENTRIES, SHARED):
            table = state.tables[name]
            buckets, keys, values = (table.column(name).to_pylist() for name in (BUCKET, KEY, VALUE))
            entries = zip(buckets, map(_unpack, keys), map(_unpack, values), strict=True)
            self.inner.load(LightState(tuple(entries)))

    def statistics(self) -> dict[str, int]:
        return dict(self.inner.statistics())


class ColumnOutlet:
    def __init__(self, inner: Outlet) -> None:
        self.inner, self.repeats = inner, inner.repeats

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> bytes | None:
        items = self.inner.encode(moment, _light(inputs))
        return None if items is None else bytes(msgpack.packb(items))

    def begin(self, partition: PartitionId, rows: int, record: Any) -> None:
        self.inner.begin(partition, rows, record)

    def publish(self, commits: Sequence[tuple[int, bytes | None, bool]]) -> int:
        return self.inner.publish(commits)


def _table(entries: Sequence[tuple[int, Any, Any]], full: bool) -> pa.RecordBatch:
    columns = {
        BUCKET: pa.array([bucket for bucket, _, _ in entries], pa.uint16()),
        KEY: pa.array([msgpack.packb(key) for _, key, _ in entries], pa.binary()),
        VALUE: pa.array([msgpack.packb(value) for _, _, value in entries], pa.binary()),
    }
    if not full:
        columns[DELETED] = pa.array([value is None for _, _, value in entries], pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, use_list=False)


class Wire:
    """To bytes and back: what a receiver in another process gets."""

    def __init__(self) -> None:
        self.plan: tuple[Message, Message] | None = None
        """The last Plan: the same one goes to every worker, and it is the longest message by far."""

    def __call__(self, message: Message) -> Message:
        if not isinstance(message, Plan):
            return decode([bytes(part) for part in encode(message)])
        if self.plan is None or self.plan[0] != message:
            self.plan = (message, decode(encode(message)))
        return self.plan[1]


class ColumnStore(SimStore):
    """Keeps bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[tuple[PartitionId, int], bytes] = {}

    def _append(self, effect: Append) -> tuple[StoreReply, list[Undo]]:
        def through(record: Any) -> Any:
            return decode_value(RECORD, encode_value(RECORD, record, JOB_KEY), JOB_KEY)

        before = tuple((epoch, through(record)) for epoch, record in effect.before)
        return super()._append(with_fields(effect, record=through(effect.record), before=before))

    def _swap(self, effect: SwapJournal) -> Undo | None:
        journal = decode_journal(encode_journal(effect.journal, JOB_KEY), JOB_KEY)
        return super()._swap(with_fields(effect, journal=journal))

    def _put(self, effect: PutCheckpoint) -> tuple[StoreReply, Undo | None]:
        value = effect.checkpoint
        partition, version = value.partition, value.version
        chain = [value]
        while chain[0].parent in self.checkpoints.get(partition, {}):
            chain.insert(0, self.checkpoints[partition][chain[0].parent])
        damaged = any((partition, saved.version) in self.damaged for saved in chain)
        folds = len(chain) >= FOLD_AFTER and not chain[0].parent and not damaged
        data = b"".join(map(bytes, encode_checkpoint(fold(chain) if folds else value, JOB_KEY, 0)))
        reply, undo = super()._put(with_fields(effect, checkpoint=decode_checkpoint(data, JOB_KEY)))
        if not reply.error:
            self.saved[partition, version] = data
        return (with_fields(reply, value=version) if folds and not reply.error else reply), undo

    def _part(self, checkpoint: Checkpoint, part: KeyRange) -> Checkpoint:
        return decode_checkpoint(self.saved[checkpoint.partition, checkpoint.version], JOB_KEY, part)

    def _flip(self, partition: PartitionId, version: int, where: KeyRange) -> None:
        """The bit flips for real: what does not notice it would load it."""
        data = self.saved[partition, version]
        at = (version * 7919 + len(data)) % len(data)
        try:
            decode_checkpoint(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], JOB_KEY)
        except DamagedError:
            super()._flip(partition, version, where)
        else:
            self.problems.append(f"a flipped bit in checkpoint {version} of {partition} was not noticed")
