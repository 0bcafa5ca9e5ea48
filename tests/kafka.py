"""What tests do to a broker besides seep: topics are made, messages written and read with a client of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

PATIENCE_SECONDS = 30.0


def make_topic(servers: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(admin.list_topics(name, PATIENCE_SECONDS).topics[name].partitions) < partitions:
        assert time.monotonic() < deadline, f"the topic {name} was made and is not known"
        time.sleep(0.05)  # it is made before the broker that answers has heard of it
    return name


def more_partitions(servers: str, name: str, count: int) -> None:
    """From now on the topic has so many."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(name, count)])[name].result(PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(admin.list_topics(name, PATIENCE_SECONDS).topics[name].partitions) < count:
        assert time.monotonic() < deadline, f"the topic {name} has got partitions that are not known"
        time.sleep(0.05)


def delete_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([name])[name].result(PATIENCE_SECONDS)


def write(servers: str, topic: str, values: Iterable[bytes | None], **options: Any) -> None:
    """In order, durable when it returns. ``partition=``, ``key=``, ``timestamp=`` as the client has them."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, **options)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def write_in_transactions(servers: str, topic: str, groups: Iterable[tuple[bool, list[bytes]]]) -> None:
    """Each group in a transaction of its own that is committed, or aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"test-{topic}", "linger.ms": 0})
    producer.init_transactions(PATIENCE_SECONDS)
    for committed, values in groups:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE_SECONDS)
        if committed:
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)


class Reader:
    """A consumer of committed messages only, from the beginning of every partition."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": f"reader-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
        }
        self.consumer = Consumer(settings)
        self.partitions = len(self.consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions)
        self.consumer.assign([TopicPartition(topic, number, 0) for number in range(self.partitions)])
        self.messages: list[Message] = []
        self.at_end: set[int] = set()

    def look(self, seconds: float = 0.1) -> None:
        """What has come since."""
        for message in self.consumer.consume(10_000, seconds):
            error = message.error()
            if error is None:
                self.messages.append(message)
                self.at_end.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at_end.add(message.partition())

    def to_end(self) -> list[Message]:
        """Everything up to the end of each partition as it is now."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.at_end.clear()
        while len(self.at_end) < self.partitions:
            assert time.monotonic() < deadline, "the topic's end was not reached"
            self.look()
        return self.messages

    def close(self) -> None:
        self.consumer.close()


def read_all(servers: str, topic: str) -> list[Message]:
    reader = Reader(servers, topic)
    try:
        return reader.to_end()
    finally:
        reader.close()
