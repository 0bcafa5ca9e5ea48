"""A topic gets partitions, and a pattern topics, while a flow reads them and its source workers are killed: every
message comes through once, each partition's in order."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import defaultdict
from itertools import count

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.running.job import Job
from tests.kafka import Reader, make_topic, more_partitions, read_all
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import process_of, send_signal, until

PATIENCE_SECONDS = 120.0
_NUMBERS = count()


class Writing:
    """Numbers go to all partitions there are, at a steady pace."""

    def __init__(self, servers: str) -> None:
        self.written: dict[tuple[str, int], int] = defaultdict(int)
        self.places: list[tuple[str, int]] = []
        settings = {"enable.idempotence": True, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 100}
        self._producer = Producer({"bootstrap.servers": servers, **settings})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.02):
            for place in list(self.places):
                n = self.written[place]
                try:
                    self._producer.produce(place[0], json.dumps({"n": n}).encode(), partition=place[1])
                except KafkaException as problem:
                    if problem.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                        raise
                    continue  # it has not heard of it yet
                self.written[place] = n + 1
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def end(self) -> dict[tuple[str, int], list[int]]:
        self._stop.set()
        self._thread.join()
        return {place: list(range(rows)) for place, rows in self.written.items()}


def flow_of(servers: str, pattern: str, out: str) -> seep.Flow:
    flow = seep.Flow("growing", epoch="20ms", checkpoint="300ms")
    config = {"topic.metadata.refresh.interval.ms": 200}
    source = seep.KafkaSource(pattern, servers=servers, schema={"n": int}, metadata=True, config=config)
    rows = flow.source("rows", source).scale(start=2)
    rows.select("n", "_topic", "_partition").sink("out", seep.KafkaSink(out, servers=servers))
    return flow


def kill_sources(job: Job) -> None:
    for worker in {entry.worker for entry in job.journal.live("rows")}:
        send_signal(process_of(job.directory, worker), signal.SIGKILL)


def come_through(reader: Reader, *places: tuple[str, int]) -> None:
    """A few messages of each."""

    def known() -> set[tuple[str, int]]:
        found = [json.loads(message.value()) for message in list(reader.messages)]
        return {(row["_topic"], row["_partition"]) for row in found if row["n"] >= 3}

    def look() -> bool:
        reader.look()
        return set(places) <= known()

    until(look, f"messages of {places}", PATIENCE_SECONDS)


@pytest.mark.server
@pytest.mark.timeout(300)
def test_what_appears_while_workers_die_is_read_once(begin: Start, kafka: KafkaBroker) -> None:
    servers, name = kafka.address, f"grown-{next(_NUMBERS)}"
    first, second, out = f"{name}-a", f"{name}-b", f"out-{name}"
    make_topic(servers, out)
    make_topic(servers, first, 2)
    job, writing, reader = (
        begin(flow_of(servers, f"^{name}-.*", out), workers=3),
        Writing(servers),
        Reader(servers, out),
    )
    try:
        writing.places += [(first, 0), (first, 1)]
        come_through(reader, (first, 0), (first, 1))
        more_partitions(servers, first, 4)
        writing.places += [(first, 2), (first, 3)]
        time.sleep(0.1)  # around the moment in which they are found
        kill_sources(job)
        come_through(reader, (first, 2), (first, 3))
        kill_sources(job)
        make_topic(servers, second, 2)
        writing.places += [(second, 0), (second, 1)]
        job.scale("rows", 3)
        come_through(reader, (second, 0), (second, 1))
        kill_sources(job)
        job.scale("rows", 1)
        expected = writing.end()
        total = sum(map(len, expected.values()))

        def all_here() -> bool:
            reader.look()
            return len(reader.messages) >= total

        until(all_here, "all of them", PATIENCE_SECONDS)
        job.stop(drain=True)
        job.wait(60.0)
    finally:
        writing.end()
        reader.close()
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in read_all(servers, out):
        row = json.loads(message.value())
        found[row["_topic"], row["_partition"]].append(row["n"])
    assert found == expected
