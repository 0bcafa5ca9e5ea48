"""Silence of a partition counts only by the word of the broker."""

from __future__ import annotations

import time

import pytest

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.connectors.kafka.reader import DOUBT_SECONDS
from tests.kafka import make_topic, write
from tests.scenarios.oracles import until

pytestmark = pytest.mark.server


def test_a_partition_is_silent_only_while_the_broker_says_so(mortal_kafka: KafkaBroker) -> None:
    topic = make_topic(mortal_kafka.address, "silent")
    write(mortal_kafka.address, topic, [b"a", b"b"])
    source = seep.KafkaSource(topic, servers=mortal_kafka.address, format="raw").prepared()
    at = source.begins(0)

    def looks() -> bool:
        nonlocal at
        found = source.read(0, at, None, 10, 0)
        at = at if found is None else found.position
        return source.caught_up(0, at)

    assert not source.caught_up(0, at), "nothing was asked yet"
    assert not looks(), "nothing was heard yet"
    until(looks, "the end")
    assert at == 2
    mortal_kafka.kill()
    until(lambda: not looks(), "that the broker is missed", 10.0)
    ends = time.monotonic() + DOUBT_SECONDS
    while time.monotonic() < ends:
        assert not looks()
    mortal_kafka.start()
    until(looks, "the broker to say so again", 30.0)
    write(mortal_kafka.address, topic, [b"c"])
    until(lambda: looks() and at == 3, "the last message", 10.0)
