"""A topic that is written to all the time, and a keyed window over it whose results go to another topic.

A key's rows all go to one partition of the topic. The sink says with each message what it belongs to, and can be asked
to stop between writing and committing, so that it can be killed there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import seep
from seep.connectors.contract import Committed, Opening
from seep.connectors.kafka.encoders import Message
from seep.connectors.kafka.publisher import Publisher
from seep.errors import Retry

SOURCE, WINDOWS, SINK = "rows", "windows", "out"
IN, OUT = "in", "out"
SPLITS, OUT_PARTITIONS = 3, 2
TOPICS = {IN: SPLITS, OUT: OUT_PARTITIONS}
KEYS = 24
PARTS, MOST_PARTS = 2, 3
"""Of the windows: the policy may choose."""
SINK_PARTS = 2
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
WINDOW = timedelta(milliseconds=100)
FLUSH_SECONDS = 60.0
BELONGS = "belongs"
"""The header that says to what: the number of the sink's partition, the epoch, how many messages both have."""


class Hesitant(Publisher):
    """With a file `hold`, stops after its messages are written and before they are committed, and says who it is."""

    def __init__(self, folder: Path, who: str, topic: str, settings: Any, name: str, opening: Opening, *rest: Any):
        super().__init__(who, topic, settings, name, opening, *rest)
        self._folder, self._number = folder, opening.number

    def _messages(self, commit: Committed) -> Iterator[Message]:
        rows = 0 if commit.record is None else commit.record.num_rows
        belongs = f"{self._number} {commit.epoch} {rows}".encode()
        for key, value, headers in super()._messages(commit):
            yield key, value, [*(headers or ()), (BELONGS, belongs)]

    def _commit(self, epoch: int) -> None:
        while (self._folder / "hold").exists():
            written = self._folder / f"{os.getpid()}-{id(self)}"
            written.write_text(str(os.getpid()))
            written.replace(self._folder / "holding")  # never seen half written
            time.sleep(0.01)
        super()._commit(epoch)


class HesitantSink(seep.KafkaSink):
    def __init__(self, folder: Path, servers: str) -> None:
        super().__init__(OUT, servers=servers, key="key")
        self.publisher = partial(Hesitant, folder)


def flow_of(name: str, servers: str, folder: str, epoch: str, checkpoint: str) -> seep.Flow:
    flow = seep.Flow(name, epoch=epoch, checkpoint=checkpoint)
    source = seep.KafkaSource(IN, servers=servers, schema={"key": str, "n": int, "at": datetime})
    rows = flow.source(SOURCE, source, time="at")
    window = seep.tumbling(WINDOW)
    counted = rows.key_by("key").window(window, count=seep.count(), sum=seep.total("n")).named(WINDOWS)
    scaled = counted.scale(start=PARTS, min=PARTS, max=MOST_PARTS, policy="rate")
    scaled.sink(SINK, HesitantSink(Path(folder), servers))
    return flow


class Writing:
    """Rows go to the topic at a steady pace until it is told to stop; row i is of time i / rate."""

    def __init__(self, servers: str, rate: float) -> None:
        self.count = 0
        self.rate = rate
        self._servers = servers
        self._refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writing")
        self._thread.start()

    def window(self) -> int:
        """The number of the window that is written to now."""
        return int(self.count / self.rate / WINDOW.total_seconds())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def end(self) -> int:
        """How many rows there are."""
        self.stop()
        if self._refused:
            raise Retry(f"{self._refused} rows could not be written to the broker")
        return self.count

    def _write(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        began = time.monotonic()
        while not self._stop.wait(0.01):
            for number in range(self.count, int((time.monotonic() - began) * self.rate)):
                at = BEGAN + timedelta(microseconds=number * 1_000_000 // int(self.rate))
                key = number * 7919 % KEYS
                row = json.dumps({"key": f"k{key}", "n": number, "at": at.isoformat()})
                producer.produce(IN, row.encode(), partition=key % SPLITS, on_delivery=self._delivered)
                self.count = number + 1
            producer.poll(0)
        self._refused += producer.flush(FLUSH_SECONDS)

    def _delivered(self, error: Any, _message: Any) -> None:
        self._refused += error is not None


def consumer_of(servers: str, topic: str, partitions: Iterable[int]) -> Any:
    """Reads committed messages from the beginning, and says where it has come to the end of a partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reading",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


def make_topics(servers: str, partitions: Mapping[str, int] = TOPICS) -> None:
    """By name, with so many partitions."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()]).values():
        made.result(60.0)
