"""``spark.readStream.format("seep")``: what a sink of a flow has committed, epoch by epoch, exactly once.

An offset is an epoch that every partition of the sink has committed, so what lies between two of them never changes,
however often Spark reads it. It holds the run of the job, too: a job that is started anew begins with epoch 1 again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_seep.types import batches
from seep.errors import DataLoss, Misuse, Retry
from seep.flow.outlet import decode
from seep.model.arrow import BUCKET
from seep.model.ids import FOREVER, PartitionId
from seep.protocol.effects import ReadJournal
from seep.protocol.journal import SHADOW, Journal
from seep.running.state import saved_graph
from seep.runtime.job import JobDirectory
from seep.runtime.stores.base import Tail


class Piece(InputPartition):
    """Of one sink partition, some epochs with rows; where in its log they begin."""

    def __init__(self, partition: PartitionId, place: Any, epochs: tuple[int, ...]) -> None:
        super().__init__((partition.operator, partition.number, epochs))
        self.partition, self.place, self.epochs = partition, place, epochs


class Seen(NamedTuple):
    epoch: int
    place: Any
    """From where on its record is found."""


class Followed:
    """The log of one sink partition, as far as it has been seen."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.last = 0
        self.waiting: list[Seen] = []
        """Epochs with rows that Spark has not committed yet."""

    def look(self) -> None:
        place = self._tail.place
        for epoch, (_, record) in self._tail.more():
            if epoch > self.last:
                self.last = epoch
                if record is not None:
                    self.waiting.append(Seen(epoch, place))


class OutputReader(DataSourceStreamReader):
    """Made in several processes; only the one that plans follows the logs."""

    def __init__(self, job: Path, sink: str, schema: StructType) -> None:
        self._job, self._sink, self._schema = job, sink, schema
        self._followed: dict[PartitionId, Followed] = {}
        self._run = ""

    def output_schema(self) -> pa.Schema:
        nodes = saved_graph(self._job).nodes
        kept = [name for name, node in nodes.items() if (node.settings or {}).get("sink") == "memory"]
        if self._sink not in kept:
            problem = "forgets what it has published" if self._sink in nodes else "is not there"
            there = f"a stream is read from collect() or a MemorySink: {', '.join(kept) or 'none'}"
            raise Misuse(f"sink {self._sink!r} {problem}; {there}")
        return (nodes[self._sink].settings or {})["schema"]

    # --- in the process that plans -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"run": JobDirectory(self._job).run, "epoch": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802
        return {"run": JobDirectory(self._job).run, "epoch": self._committed()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start["run"] != end["run"] or end["run"] != JobDirectory(self._job).run:
            raise Misuse(
                f"the flow in {self._job} was started anew since this query began, and its epochs with it; start the"
                " query with another checkpointLocation"
            )
        self._committed()
        pieces = []
        for partition, followed in self._followed.items():
            chosen = [seen for seen in followed.waiting if start["epoch"] < seen.epoch <= end["epoch"]]
            if chosen:
                pieces.append(Piece(partition, chosen[0].place, tuple(seen.epoch for seen in chosen)))
        return pieces

    def commit(self, end: dict[str, Any]) -> None:
        for followed in self._followed.values():
            followed.waiting = [seen for seen in followed.waiting if seen.epoch > end["epoch"]]

    def _committed(self) -> int:
        """The newest epoch that all partitions of the sink have committed."""
        directory = JobDirectory(self._job)
        if self._run != directory.run:
            self._run, self._followed = directory.run, {}
        store = directory.store()
        reply = store.perform(ReadJournal(0))
        if reply is None or reply.error:
            raise Retry(f"the journal of the flow in {self._job} cannot be read: {reply and reply.value}")
        journal: Journal | None = reply.value
        if journal is None:
            return 0
        for number in range(journal.next_number.get(self._sink, 0)):
            partition = PartitionId(self._sink, number)
            if partition not in self._followed:
                self._followed[partition] = Followed(store.tail(partition))
            self._followed[partition].look()
        return self._frontier(journal)

    def _frontier(self, journal: Journal) -> int:
        """A journal may be older than the logs: whoever came since begins after all that its predecessors have
        committed."""
        found = []
        for entry in journal.of(self._sink):
            if entry.role != SHADOW:
                reached = max(self._followed[entry.partition].last, entry.first - 1)
                found.append(FOREVER if reached >= entry.last else reached)
        least = min(found, default=FOREVER)
        return least if least < FOREVER else max((one.last for one in self._followed.values()), default=0)

    # --- in a task -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        found = dict(JobDirectory(self._job).store().tail(partition.partition, partition.place).more())
        for epoch in partition.epochs:
            if epoch not in found:
                raise DataLoss(f"{partition.partition}: epoch {epoch} cannot be read from its committed log")
            rows = decode(found[epoch][1]).drop_columns([BUCKET])
            yield from batches(pa.Table.from_batches([rows]), self._schema)
