"""A topic is deleted while a flow reads it: the flow stops with a report, or goes on without it by choice."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.running.job import Job
from tests.kafka import delete_topic, make_topic, write
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until
from tests.scenarios.test_kafka_growing import kill_sources

PATIENCE_SECONDS = 60.0
_NUMBERS = count()

pytestmark = pytest.mark.server


def rows(numbers: Any) -> list[bytes]:
    return [json.dumps({"n": n}).encode() for n in numbers]


def reading(kafka: KafkaBroker, topic: str, **options: Any) -> seep.Flow:
    flow = seep.Flow("deleted", epoch="20ms", checkpoint="300ms")
    config = {"topic.metadata.refresh.interval.ms": 200}
    source = seep.KafkaSource(topic, servers=kafka.address, schema={"n": int}, config=config, **options)
    found = flow.source("rows", source)
    found.collect("out")
    found.errors.collect("refused")
    return flow


def have_come(job: Job, rows: int, sink: str = "out") -> None:
    def look() -> bool:
        found: int = sum(one["statistics"].get("rows_in", 0) for one in job.status()["operators"][sink])
        return found >= rows

    until(look, f"{rows} rows in {sink}", PATIENCE_SECONDS)


@pytest.mark.timeout(120)
def test_a_flow_whose_topic_is_deleted_stops(begin: Start, kafka: KafkaBroker) -> None:
    topic = make_topic(kafka.address, f"stops-{next(_NUMBERS)}")
    write(kafka.address, topic, rows(range(10)))
    job = begin(reading(kafka, topic), workers=1)
    have_come(job, 10)
    delete_topic(kafka.address, topic)
    with pytest.raises(
        seep.SeepError, match=f"'{topic}', partition 0: the topic was deleted .* offset 10 on is"
    ) as report:
        job.wait(PATIENCE_SECONDS)
    assert "\n" not in str(report.value)


@pytest.mark.timeout(180)
def test_a_pattern_goes_on_without_a_deleted_topic(begin: Start, kafka: KafkaBroker) -> None:
    """One dead letter, whatever is killed; the other topic's rows are exact."""
    name = f"goes-{next(_NUMBERS)}"
    first, second = (make_topic(kafka.address, f"{name}-{letter}") for letter in "ab")
    for topic in (first, second):
        write(kafka.address, topic, rows(range(10)))
    job = begin(reading(kafka, f"^{name}-.*", gone="skip"), workers=2)
    have_come(job, 20)
    delete_topic(kafka.address, first)
    kill_sources(job)
    have_come(job, 1, "refused")
    kill_sources(job)
    write(kafka.address, second, rows(range(10, 20)))
    have_come(job, 30)
    job.stop(drain=True)
    result = job.wait(PATIENCE_SECONDS)
    assert sorted(result["out"].column("n").to_pylist()) == sorted([*range(10), *range(20)])
    (letter,) = result["refused"].to_pylist()
    assert letter["position"].endswith(f"{first}:0:10")
    assert "the topic was deleted" in letter["error"]
