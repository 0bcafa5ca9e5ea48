"""Where the sales come from and where the results go: no further than this process, or from and to topics of Kafka.

In memory, tills sell and the committed logs of the sinks are the results. With Kafka, another process plays the sales
into a topic, and what is looked at and judged is what a consumer of committed messages was given: the flow's own word
is taken for nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

import seep
from benchmarks.servers.kafka import KafkaBroker
from demo.load import SCHEMA, Tills
from demo.sales import Tape
from demo.shop import BEST, HOURS, MINUTES, SALES, SO_FAR
from seep.model.arrow import CHANGE
from seep.running.job import Job

PARTITIONS = 4
"""Of the topic of sales; a product is always in the same one, so its lines keep their order."""
KEYS = {MINUTES: "store", BEST: "scope", HOURS: "region", SO_FAR: None}
"""Of the topics of results; everything so far is a Table, which has a key of its own."""
ASK_SECONDS = 30.0


class Edges(Protocol):
    what: str
    """In words; empty: nothing to speak of."""

    def open(self, tape: Tape, plan: Path) -> None: ...

    def source(self, tape: Tape, plan: Path, epoch_rows: int) -> Any: ...

    def end(self, rows: Any, name: str) -> None:
        """The end of a stream of results."""

    def found(self, job: Job) -> Mapping[str, pa.Table]:
        """The results as they stand, by name."""

    def all_in(self, lines: int) -> bool:
        """Are so many lines in the results? Then nothing more comes, and the flow may end."""

    def finish(self, job: Job) -> None:
        """All was sold: let the flow come to its end."""

    def repeated(self) -> int:
        """Rows that came a second time, or after a later one of their key."""

    def close(self) -> None: ...


class InMemory:
    what = ""

    def open(self, tape: Tape, plan: Path) -> None:
        """The tills open by themselves, ..."""

    def source(self, tape: Tape, plan: Path, epoch_rows: int) -> Any:
        return Tills(tape, plan, epoch_rows)

    def end(self, rows: Any, name: str) -> None:
        rows.collect(name)

    def found(self, job: Job) -> Mapping[str, pa.Table]:
        return job.result()

    def all_in(self, lines: int) -> bool:
        return True

    def finish(self, job: Job) -> None:
        """... and close by themselves."""

    def repeated(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is left open."""


class Topic(seep.KafkaSource):
    """The topic of sales, with few lines in an epoch (see `Tills.epoch_rows`)."""

    most_rows = 1_000

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Any:
        return super().read(split, position, until, min(limit_rows, self.most_rows), now_ms)


class OnKafka:
    what = "from and to Kafka"

    def __init__(self, directory: Path) -> None:
        home = directory.absolute() / "kafka"
        shutil.rmtree(home, ignore_errors=True)
        self.broker = KafkaBroker(home)
        self._directory = directory.absolute()
        self._player: subprocess.Popen[bytes] | None = None
        self._reader: Reader | None = None

    def open(self, tape: Tape, plan: Path) -> None:
        """The broker, its topics, and who plays the sales."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self.broker.start()
        topics = [NewTopic(SALES, PARTITIONS, 1), *(NewTopic(name, 1, 1) for name in KEYS)]
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        for made in admin.create_topics(topics).values():
            made.result(ASK_SECONDS)
        self._reader = Reader(self.broker.address)
        command = [sys.executable, "-m", "demo.player", str(tape.directory), str(plan), self.broker.address, SALES]
        self._player = subprocess.Popen(command)

    def source(self, tape: Tape, plan: Path, epoch_rows: int) -> Any:
        topic = Topic(SALES, servers=self.broker.address, schema=SCHEMA)
        topic.most_rows = max(1, 2 * epoch_rows // PARTITIONS)  # they are not equally full
        return topic

    def end(self, rows: Any, name: str) -> None:
        rows.sink(name, seep.KafkaSink(name, servers=self.broker.address, key=KEYS[name]))

    def found(self, job: Job) -> Mapping[str, pa.Table]:
        assert self._reader is not None
        if job.host.outcome:
            self._reader.to_end()
        nodes = job.host.machine.graph.nodes
        return self._reader.tables({name: (nodes[name].settings or {})["schema"] for name in KEYS})

    def all_in(self, lines: int) -> bool:
        assert self._reader is not None
        self._reader.look()
        return bool(sum(row["items"] for row in self._reader.content.values()) >= lines)

    def finish(self, job: Job) -> None:
        job.stop(drain=True)

    def repeated(self) -> int:
        assert self._reader is not None
        return self._reader.repeated

    def close(self) -> None:
        if self._player is not None:
            self._player.kill()
            self._player.wait()
        if self._reader is not None:
            self._reader.close()
        self.broker.stop()


class Reader:
    """Somebody who reads the results' topics: committed messages only, from their beginning."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": servers, "enable.partition.eof": True, **settings})
        self._consumer.assign([TopicPartition(name, 0, 0) for name in KEYS])
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in KEYS}
        self.content: dict[bytes, dict[str, Any]] = {}
        """Of everything so far: the latest row of each key."""
        self.repeated = 0
        self._at_end: set[str] = set()

    def look(self, seconds: float = 0.0) -> None:
        """What has come since."""
        from confluent_kafka import KafkaError

        while messages := self._consumer.consume(10_000, seconds):
            message: Any
            for message in messages:
                error = message.error()
                if error is None:
                    self._at_end.discard(message.topic())
                    self._take(message.topic(), message.key(), json.loads(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._at_end.add(message.topic())

    def _take(self, topic: str, key: bytes, row: dict[str, Any]) -> None:
        if topic != SO_FAR:
            self._rows[topic].append(row)
            return
        # With every change a region has more lines than before.
        if key in self.content and row["items"] <= self.content[key]["items"]:
            self.repeated += 1
        self.content[key] = row

    def to_end(self) -> None:
        """Up to the end of each topic as it is now."""
        self._at_end.clear()
        deadline = time.monotonic() + ASK_SECONDS
        while len(self._at_end) < len(KEYS):
            if time.monotonic() > deadline:
                raise RuntimeError("the end of the results was not reached")
            self.look(0.2)

    def tables(self, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        self.look()
        rows = {**self._rows, SO_FAR: list(self.content.values())}
        return {name: _table(rows[name], schema) for name, schema in schemas.items()}

    def close(self) -> None:
        self._consumer.close()


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Times are text in the messages."""
    columns = []
    fields = [field for field in schema if field.name != CHANGE]
    for field in fields:
        values = [row[field.name] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pc.cast(pa.array(values, pa.string()), field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
