"""Spark Structured Streaming, in this process and its JVM: two cores, state in RocksDB, a checkpoint for every batch.

Spark wants a source it can read again, so one lap of the rows is written to Parquet before the clock runs
(`conversion_seconds`), and given again and again: a lap is a directory of hard links whose number is a column, and the
query adds the number to the times. While a batch is worked on the next lap is laid out, so that every batch is a lap
of all splits and none waits for the other. Rows are counted, and the clock read, where a batch has arrived at the sink.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import cpu_seconds
from benchmarks.oracle import digest_table
from benchmarks.peers import Spec, Unable
from benchmarks.workload import Workload
from seep.model.duration import microseconds

WORKLOADS = ("keyed-count", "keyed-window", "word-count")
HOW = (
    "Structured Streaming, local[2], RocksDB state, from Parquet, a micro-batch of one lap "
    "({rows:,} rows) and a checkpoint for each; SQL functions only"
)
END_LAP = 1_000_000
"""The lap of one row that comes after all others, so that every window closes; its own never does."""
PATIENCE_SECONDS = 900.0
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


def main(spec: Spec) -> dict[str, Any]:
    if spec.workload not in WORKLOADS:
        raise Unable(f"no program for {spec.workload}")
    workload, home = spec.load(), Path(spec.home) / "spark"
    began = time.perf_counter()
    laps = Laps.write(spec, workload, home)
    conversion_seconds = time.perf_counter() - began
    sink = Sink(spec, workload, laps)
    version = _run(spec, workload, sink, home)
    rows, seconds, cpu, batches = sink.measured()
    result = digest_table(sink.result(), workload.columns)
    return {
        "rows_per_second": round(rows / seconds),
        "cpu_seconds_per_10m_rows": round(cpu / rows * 10_000_000, 3),
        "seconds": round(seconds, 3),
        "conversion_seconds": round(conversion_seconds, 3),
        "how": HOW.format(rows=spec.lap_rows * spec.splits),
        "version": version,
        "checkpoints": batches,
        "given": {next(iter(workload.blocks)): [laps.given] * spec.splits},
        "rows_out": result.rows,
        "digest": str(result.total),
    }


def _run(spec: Spec, workload: Workload, sink: Sink, home: Path) -> str:
    """The query from its first lap until it is drained; Spark's version."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(home / "warehouse")}.items():
        builder = builder.config(name, value)
    session: Any = builder.master(f"local[{spec.parallelism}]").getOrCreate()
    try:
        session.sparkContext.setLogLevel("ERROR")
        sink.processes = (os.getpid(), session.sparkContext._gateway.proc.pid)
        sink.begin()
        writer = _results(spec, workload, session, sink.laps.path).writeStream.foreachBatch(sink.take)
        writer = writer.outputMode("update" if workload.keys else "append")
        query = writer.option("checkpointLocation", str(home / "checkpoints")).start()
        deadline = time.monotonic() + PATIENCE_SECONDS + spec.warm_seconds + spec.seconds
        while not sink.over.wait(0.5):
            if not query.isActive or time.monotonic() > deadline:
                raise Unable(f"the query has not ended: {query.exception()}")
        _drain(query)
        if not workload.keys:
            sink.laps.lay_out_last()
            _drain(query)
        query.stop()
        return str(session.version)
    finally:
        session.stop()


def _drain(query: Any) -> None:
    """Until all that is laid out has arrived, and what the watermark then closes."""
    waiting = Thread(target=query.processAllAvailable, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_SECONDS)
    if waiting.is_alive() or query.exception() is not None:
        raise Unable(f"the query was not drained: {query.exception()}")


def _results(spec: Spec, workload: Workload, session: Any, path: Path) -> Any:
    from pyspark.sql import functions as f

    reader = session.readStream.option("maxFilesPerTrigger", 10 * spec.splits)
    if spec.workload == "word-count":
        lines = reader.schema("sentence STRING, lap LONG").parquet(str(path))
        words = lines.select(f.explode(f.split("sentence", " ")).alias("word"))
        return words.groupBy("word").agg(f.count("*").alias("n"))
    if spec.workload == "keyed-count":
        sales = reader.schema("store STRING, amount LONG, lap LONG").parquet(str(path))
        return sales.groupBy("store").agg(f.count("*").alias("n"))
    sales = reader.schema("store STRING, at LONG, amount LONG, lap LONG").parquet(str(path))
    at = f.timestamp_micros(f.col("at") + f.col("lap") * spec.lap_us + spec.base_us)
    return (
        sales.select("store", at.alias("at"), "amount")
        .withWatermark("at", f"{microseconds(workload.lateness)} microseconds")
        .groupBy("store", f.window("at", "1 second"))
        .agg(f.count("*").alias("items"), f.sum("amount").alias("revenue"), f.max("amount").alias("largest"))
        .select("store", f.col("window.start").alias("window_start"), "items", "revenue", "largest")
    )


@dataclass
class Laps:
    """The laps laid out for Spark: a directory each, with a file for each split."""

    path: Path
    source: Path
    splits: int
    lap_rows: int
    end: int | None
    """Rows of a split, of a run that ends."""
    given: int = 0
    """Rows of each split so far."""
    number: int = 0

    @classmethod
    def write(cls, spec: Spec, workload: Workload, home: Path) -> Laps:
        end = max(1, spec.rows // spec.splits) if spec.bounded else None
        laps = cls(home / "laps", home / "source", spec.splits, spec.lap_rows, end)
        laps.path.mkdir(parents=True)
        laps.source.mkdir()
        [block] = workload.blocks.values()
        for split in range(spec.splits):
            record = block(split, spec.lap_rows, spec.seed)
            laps._file("whole", split, record)
            if end is not None and end % spec.lap_rows:
                laps._file("rest", split, record.slice(0, end % spec.lap_rows))
            laps._file("last", split, record.slice(0, 1))
        return laps

    def _file(self, name: str, split: int, record: pa.RecordBatch) -> None:
        pq.write_table(pa.Table.from_batches([record]), self.source / f"{name}-{split}.parquet")

    def lay_out(self) -> None:
        """The next lap, unless all are there."""
        left = self.lap_rows if self.end is None else min(self.lap_rows, self.end - self.given)
        if left:
            self._link("whole" if left == self.lap_rows else "rest", self.number)
            self.given, self.number = self.given + left, self.number + 1

    def lay_out_last(self) -> None:
        self._link("last", END_LAP)

    def _link(self, name: str, number: int) -> None:
        """Shown whole: a batch must not see one split of a lap without the other."""
        hidden = self.source / f"lap={number}"
        hidden.mkdir()
        for split in range(self.splits):
            os.link(self.source / f"{name}-{split}.parquet", hidden / f"{split}.parquet")
        hidden.rename(self.path / hidden.name)


class Mark(NamedTuple):
    at: float
    cpu: float
    rows: int


@dataclass
class Sink:
    """Reads every result, lays out the next lap, and is the clock: a batch has arrived when `take` returns."""

    spec: Spec
    workload: Workload
    laps: Laps
    marks: list[Mark] = field(default_factory=list)
    """The beginning, then each batch when it had arrived, with the rows of a split so far."""
    over: Event = field(default_factory=Event)
    processes: tuple[int, ...] = ()
    _kept: list[pa.Table] = field(default_factory=list)

    def begin(self) -> None:
        self.laps.lay_out()
        self.marks.append(self._mark(0))

    def take(self, frame: Any, batch: int) -> None:
        rows = self.laps.given
        if not self.over.is_set():
            self.laps.lay_out()
        self._kept.append(frame.toArrow())
        if not self.over.is_set():
            self.marks.append(self._mark(rows))
            if rows == self.laps.end if self.spec.bounded else self._measured_enough():
                self.over.set()

    def _mark(self, rows: int) -> Mark:
        return Mark(time.perf_counter(), sum(map(cpu_seconds, self.processes)), rows)

    def _measured_enough(self) -> bool:
        """So long as asked for, from the first arrival after the warm-up, which begins with the first of all."""
        return self.marks[-1].at - self._first().at >= self.spec.seconds

    def _first(self) -> Mark:
        if self.spec.bounded or len(self.marks) == 1:
            return self.marks[0]
        warm = self.marks[1].at + self.spec.warm_seconds
        return next((mark for mark in self.marks if mark.at >= warm), self.marks[-1])

    def measured(self) -> tuple[int, float, float, int]:
        """Rows, seconds, processor time and batches."""
        first, last = self._first(), self.marks[-1]
        batches = self.marks.index(last) - self.marks.index(first)
        return (last.rows - first.rows) * self.spec.splits, last.at - first.at, last.cpu - first.cpu, batches

    def result(self) -> pa.Table:
        """Of a Table the last row of each key."""
        whole = pa.concat_tables(self._kept)
        if not self.workload.keys:
            return whole
        frame = pl.from_arrow(whole)
        assert isinstance(frame, pl.DataFrame)
        return frame.group_by(self.workload.keys, maintain_order=True).last().to_arrow()
