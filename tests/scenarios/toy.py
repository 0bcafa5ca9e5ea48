"""A small flow written straight on the operator contract: numbers are counted by key; and a job that runs it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seep.model.arrow import BUCKET, KEY, ArrowBatch, ArrowState
from seep.model.batch import Batch, State
from seep.model.epoch import Moment
from seep.model.ids import PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node, Reading
from seep.protocol.effects import ReadLog
from seep.runtime.controller import ControllerHost
from seep.runtime.job import JobDirectory
from seep.runtime.slots import Backend

KEYS = 97
SPLITS = 4


def bucket_of(key: int) -> int:
    return key * 41 % 4096


class Numbers:
    """0, 1, 2, ... on each split, a few hundred to an epoch."""

    splits = SPLITS
    lateness_us = 0
    idle_ms = None

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        start = position or 0
        end = until if until is not None else min(self.rows, start + min(limit_rows, 200))
        keys = np.arange(start, end) % KEYS
        buckets = (keys * 41 % 4096).astype(np.uint16)
        batch = ArrowBatch(pa.record_batch({"key": keys}), buckets)
        return Reading({"numbers-count": batch}, end, end - start, ended=end >= self.rows)


class Count:
    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def take(self, moment: Moment, inputs: Sequence[tuple[int, Batch]]) -> Mapping[str, Batch]:
        touched: set[int] = set()
        for _, batch in inputs:
            assert isinstance(batch, ArrowBatch)
            keys = batch.record.column("key").to_pylist()
            self.counts.update(keys)
            touched.update(keys)
        if not touched:
            return {}
        order = sorted(touched, key=bucket_of)
        record = pa.record_batch({"key": order, "count": [self.counts[k] for k in order]})
        return {"count-out": ArrowBatch(record, np.array([bucket_of(k) for k in order], dtype=np.uint16))}

    def snapshot(self, full: bool) -> State:
        keys = sorted(self.counts)
        columns = {
            BUCKET: pa.array([bucket_of(k) for k in keys], pa.uint16()),
            KEY: pa.array([str(k).encode() for k in keys], pa.binary()),
            "count": pa.array([self.counts[k] for k in keys], pa.int64()),
        }
        return ArrowState({"counts": pa.record_batch(columns)})

    def mostly_changed(self) -> bool:
        return True

    def load(self, state: State) -> None:
        assert isinstance(state, ArrowState)
        for row in state.tables["counts"].to_pylist():
            self.counts[int(row[KEY])] = row["count"]

    def statistics(self) -> Mapping[str, int]:
        return {"keys": len(self.counts)}


class Out:
    repeats = True

    def encode(self, moment: Moment, inputs: Sequence[tuple[int, Batch]]) -> bytes | None:
        rows = [r for _, b in inputs if isinstance(b, ArrowBatch) for r in b.record.to_pylist()]
        return json.dumps(rows).encode() if rows else None

    def begin(self, partition: PartitionId, rows: int, record: bytes | None) -> None:
        """It shows nothing."""

    def publish(self, commits: Sequence[tuple[int, bytes | None, bool]]) -> int:
        return -1


def graph(rows: int, count: Callable[[], Count] = Count) -> Graph:
    nodes = {
        "numbers": Node("numbers", "source", lambda: Numbers(rows)),
        "count": Node("count", "operator", count),
        "out": Node("out", "sink", Out),
    }
    return Graph(nodes, (Edge("numbers-count", "numbers", "count", 0), Edge("count-out", "count", "out", 0)))


class Job:
    """A job on some backend, and what its tests ask of it."""

    def __init__(
        self,
        path: Path,
        rows: int,
        backend: Callable[[JobDirectory], Backend],
        count: Callable[[], Count] = Count,
        **knobs: Any,
    ) -> None:
        self.rows = rows
        self.backend = backend
        settings = Settings(epoch_ms=20, checkpoint_ms=200, **knobs)
        self.directory = JobDirectory.create(path, graph(rows, count), settings)
        self.host = self.new_controller()

    def new_controller(self) -> ControllerHost:
        self.host = ControllerHost(self.directory, self.backend(self.directory), workers=2)
        self.host.start()
        return self.host

    def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.host.view
            assert self.host.report == ""
            time.sleep(0.01)

    def epoch(self, operator: str = "out") -> int:
        view = self.host.view
        return max((s.epoch for p, s in view.statuses.items() if p.operator == operator), default=-1)

    def advance(self, epochs: int) -> None:
        goal = self.epoch() + epochs
        self.until(lambda: self.epoch() >= goal)

    def assert_exact(self) -> None:
        """Every count of every key was committed once, in order, up to the last."""
        store = self.directory.store()
        last: Counter[int] = Counter()
        for entry in self.host.view.journal.of("out"):
            reply = store.perform(ReadLog(1, entry.partition))
            assert reply is not None
            for row in (row for _, (_, record) in reply.value if record for row in json.loads(record)):
                assert row["count"] > last[row["key"]]
                last[row["key"]] = row["count"]
        expected = Counter(n % KEYS for n in range(self.rows))
        assert last == Counter({key: n * SPLITS for key, n in expected.items()})
