"""Kafka -> keyed window -> Kafka on real processes: workers are killed, the sink between writing and committing, the
broker is killed and paused; somebody who reads committed messages all the while sees each result once, and each key's
in order."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.connectors.kafka.publisher import Publisher
from seep.running.job import Job
from tests.kafka import Reader, make_topic
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, process_of, send_signal, until

KEYS, SPLITS = 12, 3
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=20)
"""Of event time, between two rows."""
WINDOW = timedelta(seconds=1)
PATIENCE_SECONDS = 120.0


class Hesitant(Publisher):
    """With a file `hold`, stops after its messages are written and before they are committed, and says who it is."""

    def _commit(self, epoch: int) -> None:
        folder = Path(self._settings["client.id"])  # a setting that comes along with the sink and does nothing
        while (folder / "hold").exists():
            written = folder / f"{os.getpid()}-{id(self)}"
            written.write_text(str(os.getpid()))
            written.replace(folder / "holding")  # never seen half written
            time.sleep(0.01)
        super()._commit(epoch)


class HesitantSink(seep.KafkaSink):
    publisher = Hesitant


def row(i: int) -> dict[str, Any]:
    return {"key": f"k{i * 7919 % KEYS}", "n": i, "at": (BEGAN + i * STEP).isoformat()}


def flow_of(servers: str, folder: Path) -> seep.Flow:
    flow = seep.Flow("kafka", epoch="50ms", checkpoint="500ms")
    source = seep.KafkaSource("in", servers=servers, schema={"key": str, "n": int, "at": datetime})
    rows = flow.source("rows", source, time="at")
    counted = rows.key_by("key").window(seep.tumbling("1s"), count=seep.count(), sum=seep.total("n")).named("windows")
    counted.sink("out", HesitantSink("out", servers=servers, key="key", config={"client.id": str(folder)}))
    return flow


class Writing:
    """Rows go to the topic at a steady pace until it is told to stop; a key's rows all go to one partition."""

    def __init__(self, servers: str) -> None:
        self.count = 0
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5})
        while not self._stop.wait(0.01):
            for _ in range(5):
                message = row(self.count)
                partition = int(message["key"][1:]) % SPLITS
                producer.produce("in", json.dumps(message).encode(), partition=partition)
                self.count += 1
            producer.poll(0)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.count


@contextmanager
def watching(servers: str) -> Iterator[Reader]:
    """A reader that reads all the while."""
    reader, stop = Reader(servers, "out"), threading.Event()

    def look() -> None:
        while not stop.is_set():
            reader.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield reader
    finally:
        stop.set()
        thread.join()
        reader.close()


def expected(rows: int) -> dict[tuple[str, datetime], tuple[int, int]]:
    """By key and start of the window, in plain Python."""
    counts: Counter[tuple[str, datetime]] = Counter()
    sums: Counter[tuple[str, datetime]] = Counter()
    for i in range(rows):
        place = (row(i)["key"], BEGAN + (i * STEP) // WINDOW * WINDOW)
        counts[place] += 1
        sums[place] += i
    return {place: (counts[place], sums[place]) for place in counts}


def kill(job: Job, operator: str) -> None:
    send_signal(process_of(job.directory, job.journal.live(operator)[0].worker), signal.SIGKILL)


def kill_between_write_and_commit(folder: Path) -> None:
    (folder / "holding").unlink(missing_ok=True)
    (folder / "hold").touch()
    until((folder / "holding").exists, "a transaction to be open", 60.0)
    send_signal(int((folder / "holding").read_text()), signal.SIGKILL)
    (folder / "hold").unlink()


def restart(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


def pause(broker: KafkaBroker) -> None:
    broker.pause()
    time.sleep(3.0)
    broker.go_on()


def grow(reader: Reader, messages: int = 30) -> None:
    goal = len(reader.messages) + messages
    until(lambda: len(reader.messages) >= goal, f"{messages} more results", PATIENCE_SECONDS)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kafka_to_kafka_is_exact_through_kills(begin: Start, mortal_kafka: KafkaBroker, tmp_path: Path) -> None:
    servers = mortal_kafka.address
    make_topic(servers, "in", SPLITS)
    make_topic(servers, "out", 2)
    writing = Writing(servers)
    with watching(servers) as reader:
        try:
            job = begin(flow_of(servers, tmp_path), workers=3)
            grow(reader)
            for operator in ("rows", "windows", "out"):
                kill(job, operator)
                grow(reader)
            for _ in range(2):
                kill_between_write_and_commit(tmp_path)
                grow(reader)
            job.scale("out", 2)
            for _ in range(2):
                restart(mortal_kafka)
                grow(reader)
                pause(mortal_kafka)
                grow(reader)
            kill(job, "out")
            restart(mortal_kafka)
            grow(reader)
        finally:
            rows = writing.end()
        # What is still in the topic must be read before the flow is told to end: the windows of the last rows wait.
        behind = len({start for _, start in expected(rows)}) - 2
        until(lambda: len(windows(reader)) >= behind, "all but the last windows", 90.0)
        advance(job, 20, "out")
        job.stop(drain=True)
        job.wait(60.0)
        until(lambda: len(reader.messages) >= len(expected(rows)), "the end", 30.0)
        time.sleep(0.5)  # whatever should not come could come now
    assert_exact(reader, rows)


def windows(reader: Reader) -> set[str]:
    return {json.loads(message.value())["window_start"] for message in list(reader.messages)}


def assert_exact(reader: Reader, rows: int) -> None:
    found: dict[tuple[str, datetime], tuple[int, int]] = {}
    starts: dict[str, list[datetime]] = defaultdict(list)
    for message in reader.messages:
        result = json.loads(message.value())
        start = datetime.fromisoformat(result["window_start"])
        assert message.key() == result["key"].encode()
        assert (result["key"], start) not in found, f"{result} came twice"
        found[result["key"], start] = (result["count"], result["sum"])
        starts[result["key"]].append(start)
    assert found == expected(rows)
    assert all(times == sorted(times) for times in starts.values())
