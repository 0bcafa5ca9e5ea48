"""A sink as a partition runs it: the committed record of an epoch, and what is shown of it afterwards.

The record is an Arrow stream of the rows in canonical order, with their origin bucket as the last column, so that the
records of several partitions, before and after splits and merges, can be put into one order again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa

from operators.step import DEAD_LETTERS
from seep.connectors.contract import AT_MOST_ONCE, Committed, Opening, Publish, Refused, Sink
from seep.flow.fused import UNCLAIMED
from seep.model.arrow import BUCKET, CHANGE, DELETE, ArrowBatch
from seep.model.care import Care, carefree
from seep.model.epoch import Moment
from seep.model.ids import PartitionId


@dataclass(frozen=True)
class OutletPlan:
    """Makes the outlet of a node; picklable. Tests put another connector in its place."""

    name: str
    sink: Sink
    schema: pa.Schema
    guarantee: str = "exactly-once"
    table_keys: tuple[str, ...] | None = None

    def __call__(self) -> SinkOutlet:
        return SinkOutlet(self)

    def prepared(self) -> OutletPlan:
        """As the job keeps it: with what the connector has to look up once."""
        ready = getattr(self.sink, "prepared", None)
        return self if ready is None else replace(self, sink=ready())


class SinkOutlet:
    """`seep.partition.contract.Outlet`."""

    def __init__(self, plan: OutletPlan) -> None:
        self.plan = plan
        self.repeats = plan.guarantee != AT_MOST_ONCE
        self.care: Callable[[int], Care] = carefree
        self._opening = Opening(plan.name, guarantee=plan.guarantee, table_keys=plan.table_keys)
        self._publish: Publish | None = None
        self.refused = 0
        """Rows that it could not publish, since it began."""
        self._unclaimed: deque[dict[str, Any]] = deque(maxlen=UNCLAIMED)

    def begin(self, partition: PartitionId, rows: int, record: bytes | None) -> None:
        forgotten = rows > (0 if record is None else decode(record).num_rows)
        self._opening = replace(
            self._opening, number=partition.number, forgotten=forgotten, care=self.care, refuse=self._refuse
        )

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, ArrowBatch]]) -> bytes | None:
        batches = [batch for _, batch in inputs if batch.rows]
        if not batches:
            return None
        batch = ArrowBatch.concat(batches).by_bucket()
        record = batch.record.append_column(BUCKET, pa.array(batch.buckets, pa.uint16()))
        measured = pa.MockOutputStream()
        _write(record, measured)
        target = pa.allocate_buffer(measured.size())  # one that grew would copy what it has each time
        _write(record, pa.FixedSizeBufferWriter(target))
        return bytes(target.to_pybytes())

    def publish(self, commits: Sequence[tuple[int, bytes | None, bool]]) -> int:
        if self._publish is None:
            self._publish = self.plan.sink.open(self._opening)
        rows = [Committed(epoch, None if data is None else decode(data), ended) for epoch, data, ended in commits]
        return self._publish(rows)

    def _refuse(self, epoch: int, one: Refused) -> None:
        """Called where it is published, on another thread than `take_unclaimed`."""
        self.refused += 1
        position = f"{self._opening.number}:{one.position}"
        letter = [one.text, one.reason, self.plan.name, epoch, position]
        self._unclaimed.append(dict(zip(DEAD_LETTERS.names, letter, strict=True)))

    def take_unclaimed(self) -> list[dict[str, Any]]:
        """Dead letters of a sink: no stream of the flow comes behind it, so they are for people alone."""
        return [self._unclaimed.popleft() for _ in range(len(self._unclaimed))]


def _write(record: pa.RecordBatch, target: pa.NativeFile) -> None:
    with pa.ipc.new_stream(target, record.schema) as writer:
        writer.write_batch(record)


def decode(record: bytes) -> pa.RecordBatch:
    """The rows of one committed epoch, with their origin buckets."""
    with pa.ipc.open_stream(record) as reader:
        return reader.read_next_batch()


def result_table(settings: Mapping[str, Any], records: Iterable[tuple[int, bytes | None]]) -> pa.Table:
    """What a sink holds, from the committed (epoch, record) of all its partitions: every row in epoch and bucket
    order; of a Table, its final content. ``settings``: of the sink's node."""
    parts = [(epoch, decode(record)) for epoch, record in records if record is not None]
    # By bucket inside an epoch; no two partitions have rows of one bucket in one epoch.
    parts.sort(key=lambda part: (part[0], part[1].column(BUCKET)[0].as_py()))
    schema = settings["schema"]
    table = pa.Table.from_batches([record.drop_columns([BUCKET]) for _, record in parts], schema=schema)
    keys = settings["table_keys"]
    return table if keys is None else table_content(table, keys)


def table_content(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows a Table holds after these changes, in the order in which their keys came in.

    >>> table_content(pa.table({"k": ["a", "b", "a"], "change": ["insert", "insert", "delete"]}), ["k"]).to_pylist()
    [{'k': 'b'}]
    """
    rows = changes.drop_columns([CHANGE])
    if changes.num_rows == 0:
        return rows
    kinds = pl.Series(changes.column(CHANGE).to_pylist(), dtype=pl.String)
    if keys:
        frame = pl.from_arrow(changes.select(list(dict.fromkeys(keys))))
        assert isinstance(frame, pl.DataFrame)
        numbered = frame.with_row_index("__row").with_columns(kinds.alias("__kind"))
        last = numbered.group_by(list(keys), maintain_order=True).agg(pl.col("__row").last(), pl.col("__kind").last())
    else:
        last = pl.DataFrame({"__row": [changes.num_rows - 1], "__kind": kinds.tail(1)})
    chosen = last.filter(pl.col("__kind") != DELETE).get_column("__row").to_list()
    return rows.take(pa.array(chosen, pa.int64()))
