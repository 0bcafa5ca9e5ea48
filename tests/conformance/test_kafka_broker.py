"""The broker that tests and benchmarks start: what it has taken survives kill -9, and a pause is only a pause."""

from __future__ import annotations

import pytest

from benchmarks.servers.kafka import KafkaBroker
from tests.kafka import make_topic, read_all, write

pytestmark = pytest.mark.server


def test_a_killed_broker_starts_again_with_what_it_had(mortal_kafka: KafkaBroker) -> None:
    make_topic(mortal_kafka.address, "kept")
    write(mortal_kafka.address, "kept", [b"a", b"b"])
    before = mortal_kafka.process
    mortal_kafka.kill()
    mortal_kafka.start()
    assert mortal_kafka.process != before
    mortal_kafka.pause()
    mortal_kafka.go_on()
    write(mortal_kafka.address, "kept", [b"c"])
    assert [message.value() for message in read_all(mortal_kafka.address, "kept")] == [b"a", b"b", b"c"]
