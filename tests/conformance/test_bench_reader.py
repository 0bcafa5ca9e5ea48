"""The reader that judges `seep bench exactly-once`: he must notice an epoch that is there in part, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from benchmarks.reader import Reading, torn
from benchmarks.servers.kafka import KafkaBroker
from benchmarks.topics import BEGAN, BELONGS, OUT, make_topics
from tests.scenarios.oracles import until

pytestmark = pytest.mark.server


@pytest.fixture
def reading(mortal_kafka: KafkaBroker) -> Iterator[Reading]:
    make_topics(mortal_kafka.address)
    reader = Reading(mortal_kafka.address)
    yield reader
    reader.end()


def produce(producer: Producer, belongs: str, number: int) -> None:
    row = {"key": f"k{number}", "window_start": BEGAN.isoformat(), "count": 1, "sum": number}
    producer.produce(OUT, json.dumps(row).encode(), partition=0, headers=[(BELONGS, belongs.encode())])
    assert producer.flush(20.0) == 0


def seen(reading: Reading, count: int) -> None:
    """So many messages, and after them nothing that could be read."""

    def at_end() -> bool:
        results = list(reading.results)
        return len(results) >= count and any((p, o) > (0, results[-1].offset) for p, o in set(reading.ends) if p == 0)

    until(at_end, f"{count} messages and the end", 30.0)


@pytest.mark.timeout(90)
def test_an_epoch_that_is_there_in_part_is_noticed(mortal_kafka: KafkaBroker, reading: Reading) -> None:
    settings = {"bootstrap.servers": mortal_kafka.address, "linger.ms": 0}
    whole = Producer({**settings, "transactional.id": "whole"})
    whole.init_transactions(20.0)
    whole.begin_transaction()
    for number in range(2):
        produce(whole, "0 1 2", number)
    whole.commit_transaction(20.0)
    seen(reading, 2)
    assert torn(reading.results, reading.ends) == 0
    plain = Producer(settings)
    for number in range(2):
        produce(plain, "0 2 2", number)
        seen(reading, 3 + number)
    assert torn(reading.results, reading.ends) == 1
