"""``spark.read.format("seep")``: what an operator remembers, at a savepoint or at one epoch of a running flow.

Each task reads a key range, as if the operator were restored with so many partitions. Of a running flow the planner
asks for a view first (`seep.running.views`), so every action sees one epoch, the newest; two actions see two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace as with_fields
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_seep.types import batches
from seep.cli.client import ask_job
from seep.errors import Misuse
from seep.model.arrow import REPLICATED, ArrowState
from seep.model.ids import EVERYTHING, KeyRange
from seep.running.savepoint import Savepoint, savepoint_at
from seep.running.state import check_operator, saved_graph, state_table
from seep.running.views import DIRECTORY as VIEWS
from seep.state.checkpoint import Checkpoint

SLICES = 16
"""Key ranges: a checkpoint of some size lies in sections of its own for each 64th of the keys."""


class Slice(InputPartition):
    """Of a saved operator, one key range."""

    def __init__(self, saved: Path, key_range: KeyRange) -> None:
        super().__init__((str(saved), key_range.low, key_range.high))
        self.saved, self.key_range = saved, key_range


class StateReader(DataSourceReader):
    def __init__(self, job: Path, operator: str, at: str | None, schema: StructType) -> None:
        self._job, self._operator, self._at, self._schema = job, operator, at, schema

    def state_schema(self) -> pa.Schema:
        graph = saved_graph(self._job)
        check_operator(graph, self._operator)
        found = state_table(graph, self._operator, []).schema
        if not found.names:
            raise Misuse(f"{self._operator!r} keeps no state")
        return found

    def partitions(self) -> Sequence[InputPartition]:
        if self._at is None:
            saved = Path(ask_job(self._job, "POST", "view", {"operator": self._operator})["path"])
        else:
            saved = savepoint_at(self._job, self._at).path.absolute()
        return [Slice(saved, key_range) for key_range in EVERYTHING.split(SLICES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        if partition.saved.parent.name == VIEWS:
            _still_read(partition.saved)
        checkpoints = Savepoint(partition.saved).checkpoints(self._operator, partition.key_range)
        if partition.key_range.low > 0:
            checkpoints = [_without_replicated(one) for one in checkpoints]
        table = state_table(saved_graph(self._job), self._operator, checkpoints)
        yield from batches(table, self._schema)


def _still_read(view: Path) -> None:
    try:
        os.utime(view)
    except FileNotFoundError:
        raise Misuse(
            f"the state that was to be read ({view.name}) is gone after an hour; run the query again"
        ) from None


def _without_replicated(checkpoint: Checkpoint) -> Checkpoint:
    """What is the same in every partition is read with the first key range alone."""
    assert isinstance(checkpoint.state, ArrowState)
    tables = {name: table for name, table in checkpoint.state.tables.items() if not name.startswith(REPLICATED)}
    return with_fields(checkpoint, state=ArrowState(tables))
