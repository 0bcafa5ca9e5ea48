"""`format("seep")` in a real Spark: state and savepoints by key range, a sink's output exactly once across restarts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seep.flow.outlet import decode
from seep.running.job import Job
from seep.running.result import records_of
from tests.scenarios.oracles import advance, expected
from tests.scenarios.test_state import two_ways

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.delenv("SPARK_HOME", raising=False)
        builder = SparkSession.builder.master("local[1]").appName("seep")
        try:
            session = builder.config(map=settings).getOrCreate()
        except PySparkException as error:
            pytest.skip(f"no Java: tools/setup java ({error})")
    yield session
    session.stop()


def state(spark: SparkSession, job: Job, operator: str, **options: str) -> DataFrame:
    return spark.read.format("seep").options(operator=operator, **options).load(str(job.directory.path))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


class Follower:
    """A streaming query that is started again and again, with what it was given so far."""

    def __init__(self, spark: SparkSession, job: Job, sink: str, home: Path) -> None:
        self.spark, self.job, self.sink, self.home = spark, job, sink, home
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def catch_up(self) -> None:
        stream = self.spark.readStream.format("seep").option("sink", self.sink).load(str(self.job.directory.path))
        writer = stream.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.home / self.sink)).start().awaitTermination(60)

    def _take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = rows(frame)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches.values() for row in batch]


def committed(job: Job, sink: str) -> list[dict[str, Any]]:
    """All that is in the sink's logs, in their order."""
    records = records_of(sink, job.journal, job.directory.store().perform)
    found = [decode(record).to_pylist() for _, record in records if record is not None]
    return [{name: value for name, value in row.items() if name != "__bucket"} for rows in found for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_state_a_savepoint_and_a_stream(begin: Callable[..., Job], spark: SparkSession, tmp_path: Path) -> None:
    job = begin(two_ways("sales"))
    advance(job, 20, "key")
    frame = state(spark, job, "by-key")
    assert frame.schema.simpleString() == "struct<key:string,count:bigint,sum:bigint>"
    live = {row["key"]: (row["count"], row["sum"]) for row in rows(frame)}
    assert live == expected(sum(count for count, _ in live.values()))

    job.savepoint("v1")
    saved = state(spark, job, "by-rest", at="v1")
    assert saved.rdd.getNumPartitions() > 4
    found = sorted(rows(saved), key=lambda row: row["rest"])
    assert found == job.query("select * from by_rest order by rest", at="v1").to_pylist()

    follower = Follower(spark, job, "key", tmp_path)
    follower.catch_up()
    before = len(follower.seen)
    assert before > 0
    advance(job, 10, "key")
    follower.catch_up()
    assert len(follower.seen) > before
    job.stop(drain=True)
    job.wait(60)
    follower.catch_up()
    assert follower.seen == committed(job, "key")
