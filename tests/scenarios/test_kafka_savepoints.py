"""A savepoint of a flow that reads topics goes on where it was: with other parallelism, more partitions, and inline."""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
import pytest

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.running.job import Job
from tests.kafka import make_topic, more_partitions, write
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until


def flow_of(servers: str, topic: str, parts: int, load: str | None = None) -> seep.Flow:
    flow = seep.Flow("topics", epoch="20ms", checkpoint="200ms")
    source = seep.KafkaSource(topic, servers=servers, schema={"n": int}, load=load)
    rows = flow.source("rows", source).scale(start=parts).with_columns(k=pl.col("n") % 3)
    sums = rows.key_by("k").aggregate(rows=seep.count(), sum=seep.total("n")).named("sums").scale(start=parts)
    sums.collect("out")
    return flow


def put(servers: str, topic: str, numbers: Iterable[int], partition: int) -> None:
    write(servers, topic, [json.dumps({"n": n}).encode() for n in numbers], partition=partition)


def counted(job: Job) -> int:
    return sum(job.state("sums")["rows"].to_pylist())


@pytest.mark.server
@pytest.mark.timeout(120)
@pytest.mark.parametrize("pattern", [False, True], ids=["name", "pattern"])
def test_a_topic_is_read_on_from_where_it_was(begin: Start, kafka: KafkaBroker, pattern: bool) -> None:
    servers, name = kafka.address, f"saved-{pattern}"
    topic = f"^{name}$" if pattern else name
    make_topic(servers, name, 2)
    put(servers, name, range(30), 0)
    put(servers, name, range(30, 50), 1)
    job = begin(flow_of(servers, topic, parts=2))
    until(lambda: counted(job) == 50, "all of the first rows")
    saved = job.savepoint("v1")["path"]
    put(servers, name, range(50, 60), 1)  # read by the first job, too, and again by whoever starts from the savepoint
    until(lambda: counted(job) == 60, "the next ones")
    job.close()

    more_partitions(servers, name, 3)
    put(servers, name, range(60, 70), 2)
    expected = {(k, len(range(k, 70, 3)), sum(range(k, 70, 3))) for k in range(3)}
    found = seep.run(flow_of(servers, topic, parts=1, load="to-end"), restore=saved)["out"].to_pylist()
    assert {tuple(row.values()) for row in found} == expected

    job = begin(flow_of(servers, topic, parts=3), restore="v1")
    until(lambda: counted(job) == 70, "those that came after the savepoint")
    assert (job.audit()["problems"], job.audit()["balanced"]) == ([], True)
    job.stop(drain=True)
    assert {tuple(row.values()) for row in job.wait(30)["out"].to_pylist()} == expected

    with pytest.raises(seep.Misuse, match=r"forgotten|not there any more") as refused:
        begin(flow_of(servers, make_topic(servers, f"other-{name}"), parts=1), restore="v1")
    assert "\n" not in str(refused.value)


@pytest.mark.server
@pytest.mark.timeout(120)
def test_a_topic_that_was_read_to_its_end_is_read_to_the_end_it_has_now(begin: Start, kafka: KafkaBroker) -> None:
    """A Table of a topic was loaded up to where the topic had ended when the first flow was started."""
    servers, topic = kafka.address, make_topic(kafka.address, "loaded", 2)

    def flow() -> seep.Flow:
        found = flow_of(servers, topic, parts=1, load="to-end")
        found.source("others", seep.GeneratorSource(lambda i: {"n": i}, rate=100)).collect("others-out")
        return found

    put(servers, topic, range(20), 0)
    job = begin(flow())
    until(lambda: counted(job) == 20, "all of the first rows")
    job.savepoint("v1")
    job.close()
    put(servers, topic, range(20, 30), 1)
    job = begin(flow(), restore="v1")
    until(lambda: counted(job) == 30, "those that came after it")
    assert (job.audit()["problems"], job.audit()["balanced"]) == ([], True)
