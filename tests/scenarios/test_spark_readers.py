"""The readers of `format("seep")`, as Spark calls them, without a Spark: each task gets what was pickled for it."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import seep
from pyspark_seep import DefaultSource
from pyspark_seep.output import OutputReader
from pyspark_seep.types import batches, spark_schema
from seep.errors import Misuse
from seep.flow.outlet import decode
from seep.running.job import Job
from seep.running.result import records_of
from seep.running.savepoint import savepoint_at
from seep.running.state import state_table
from tests.scenarios.oracles import advance, expected, process_of, send_signal
from tests.scenarios.test_state import two_ways

Rows = list[dict[str, Any]]


def tasks(reader: Any, partitions: Sequence[InputPartition]) -> Rows:
    """In processes of their own, so to speak."""
    found: Rows = []
    for partition in partitions:
        other, given = pickle.loads(pickle.dumps((reader, partition)))  # noqa: S301
        found += [row for batch in other.read(given) for row in batch.to_pylist()]
    return found


def state(job: Job, operator: str, **options: str) -> Rows:
    source = DefaultSource({"path": str(job.directory.path), "operator": operator, **options})
    reader = source.reader(source.schema())
    return tasks(reader, reader.partitions())


class Query:
    """A streaming query: its checkpoint, which outlives it, and what it was given."""

    def __init__(self, job: Job, sink: str) -> None:
        self.path, self.sink = job.directory.path, sink
        self.offset: dict[str, Any] | None = None
        self.seen: Rows = []
        self.start()

    def start(self) -> None:
        source = DefaultSource({"path": str(self.path), "sink": self.sink})
        self.reader: OutputReader = source.streamReader(source.schema())

    def batch(self, crashes: bool = False) -> None:
        """One micro-batch; if it crashes it is planned, read, and read again by another process."""
        start = self.offset or self.reader.initialOffset()
        end = self.reader.latestOffset()
        assert end["epoch"] >= start["epoch"] or end["run"] != start["run"]
        if crashes:
            lost = tasks(self.reader, self.reader.partitions(start, end))
            self.start()
        found = tasks(self.reader, self.reader.partitions(start, end))
        assert not crashes or found == lost
        self.seen += found
        self.offset = end
        self.reader.commit(end)


def committed(job: Job, sink: str) -> Rows:
    """All that is in the sink's logs."""
    records = records_of(sink, job.journal, job.directory.store().perform)
    return [
        {name: value for name, value in row.items() if name != "__bucket"}
        for _, record in records
        if record is not None
        for row in decode(record).to_pylist()
    ]


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["key"], row["count"]))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_row_once_whatever_happens_to_flow_and_query(begin: Callable[..., Job]) -> None:
    job = begin(two_ways("sales"))
    query = Query(job, "key")
    query.batch()
    advance(job, 10, "key")
    query.batch(crashes=True)
    job.scale("key", 3)
    query.batch()
    advance(job, 5, "key")
    send_signal(process_of(job.directory, job.journal.live("key")[1].worker), signal.SIGKILL)
    query.batch(crashes=True)
    job.scale("key", 1)
    advance(job, 5, "key")
    query.batch()
    live = {row["key"]: (row["count"], row["sum"]) for row in state(job, "by-key")}
    assert live == expected(sum(count for count, _ in live.values()))
    job.stop(drain=True)
    job.wait(60)
    query.batch()
    assert in_order(query.seen) == in_order(committed(job, "key"))
    keys = {row["key"] for row in query.seen}
    for key in keys:
        counts = [row["count"] for row in query.seen if row["key"] == key]
        assert counts == sorted(set(counts)), "in the order of the key"
    before = len(query.seen)
    query.batch()
    assert len(query.seen) == before

    # Nothing that another run counts may be taken for the rest of this one.
    begin(two_ways("sales"))
    with pytest.raises(Misuse, match="was started anew since this query began"):
        query.batch()


def looked_up(name: str) -> seep.Flow:
    """A Table that every partition has, and one that each has its part of."""
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    rows = [{"k": i, "v": f"v{i}"} for i in range(50)]
    few = flow.source("few", seep.MemorySource(rows)).key_by("k")
    many = flow.source("many", seep.GeneratorSource(lambda i: {"k": i % 50, "n": i}, rate=1_000)).key_by("k")
    many.join_table(few.broadcast()).named("with-all").scale(start=2).collect("a")
    many.join_table(few.table()).named("with-own").scale(start=2).collect("b")
    many.sink("written", seep.FileSink("written", format="jsonl"))
    return flow


@pytest.mark.timeout(60)
def test_what_every_partition_has_is_read_once(
    begin: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = begin(looked_up("looked-up"))
    advance(job, 10, "a")
    job.savepoint("v1")
    for operator in ("with-all", "with-own"):
        whole = state_table(
            job.host.machine.graph, operator, savepoint_at(job.directory.path, "v1").checkpoints(operator)
        )
        found = sorted(state(job, operator, at="v1"), key=lambda row: row["k"])
        assert found == sorted(whole.to_pylist(), key=lambda row: row["k"])
        assert [row["k"] for row in found] == list(range(50))

    def refused(**options: str) -> str:
        with pytest.raises(Misuse) as error:
            DefaultSource(options).schema()
        return str(error.value)

    path = str(job.directory.path)
    assert "option 'operator' is missing" in refused(flow="sales")
    assert "option 'flow' is missing" in refused(operator="with-own")
    assert "there is no job in" in refused(flow="sales", operator="with-own")
    assert "no operator 'other'; operators are: with-all, table-k, with-own" in refused(path=path, operator="other")
    assert "'many' is a source and keeps no state" in refused(path=path, operator="many")
    assert "format('seep') has no option 'opertor'" in refused(path=path, opertor="with-own")
    assert "'written' forgets what it has published; a stream is read from" in refused(path=path, sink="written")
    assert "sink 'c' is not there" in refused(path=path, sink="c")
    with pytest.raises(Misuse, match="there is no savepoint at"):
        state(job, "with-own", at="v2")
    job.close()
    with pytest.raises(Misuse, match="flow 'looked-up' does not run in"):
        state(job, "with-own")


@pytest.mark.timeout(60)
def test_a_stream_is_read_once_and_views_go_when_nobody_reads_them(
    begin: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(two_ways("sales"))
    query = Query(job, "key")
    advance(job, 5, "key")
    query.batch()
    advance(job, 5, "key")
    query.batch(crashes=True)
    seen = {(row["key"], row["count"]) for row in query.seen}
    assert len(seen) == len(query.seen) > 0
    assert seen <= {(row["key"], row["count"]) for row in committed(job, "key")}
    source = DefaultSource({"path": str(job.directory.path), "operator": "by-key"})
    reader = source.reader(source.schema())
    early, late = reader.partitions(), reader.partitions()
    assert len(list((job.directory.path / "views").iterdir())) == 2
    assert tasks(reader, early)
    monkeypatch.setattr("seep.running.views.KEPT_SECONDS", 0.0)
    reader.partitions()
    with pytest.raises(Misuse, match="run the query again"):
        tasks(reader, late)


def test_types_that_spark_does_not_have() -> None:
    table = pa.table(
        {
            "wide": pa.array([2**64 - 1, None], pa.uint64()),
            "nested": pa.array([[{"t": 1}], None], pa.list_(pa.struct({"t": pa.time32("s")}))),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "at": pa.array([0, None], pa.timestamp("us", "UTC")),
            "took": pa.array([1, None], pa.duration("us")),
        }
    )
    schema = spark_schema(table.schema)
    assert isinstance(schema, StructType)
    [batch] = batches(table, schema)
    first, second = batch.to_pylist()
    assert (int(first["wide"]), first["map"]) == (2**64 - 1, [("a", 1)])
    assert first["nested"].startswith("[{'t': ")
    assert set(second.values()) == {None}
