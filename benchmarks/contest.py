"""A system that reads a topic and writes another, run as processes of its own and measured from outside.

It is the same for all: what they are given, when the clock runs, whose processor time counts, who reads the results.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.machine import cpu_seconds, descendants
from benchmarks.sales import Message, Sales, results_of
from seep.errors import Retry

WARM_SECONDS = 120.0
STUCK_SECONDS = 90.0
"""So long without a new result, and it has failed."""
QUIET_SECONDS = 2.0
"""After the last result, for those that come twice."""
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
WRITE_SECONDS = 300.0


class Task(NamedTuple):
    system: str
    rows: int
    """Measured; those to warm up come on top."""
    servers: str
    source: str
    target: str
    home: Path
    checkpoint_ms: int
    parallelism: int


class Running(Protocol):
    process: subprocess.Popen[bytes]

    def problem(self) -> str:
        """Why it does not run any more; empty while it does."""

    def close(self) -> None: ...


class Program:
    """A command that runs until it is ended."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        self._output = home / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=home, stdout=output, stderr=output, start_new_session=True)

    def problem(self) -> str:
        code = self.process.poll()
        if code is None:
            return ""
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return f"it has ended with {code}: {' / '.join(lines[-3:])}"

    def close(self) -> None:
        """It and all that it has started, which are a process group."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return  # all of them have ended


class Result(NamedTuple):
    at: float
    """When it was read, on the monotonic clock."""
    value: bytes


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float
    start_seconds: float
    results: pl.DataFrame

    def figures(self, rows: int) -> dict[str, Any]:
        return {
            "rows_per_second": round(rows / self.seconds),
            "cpu_seconds_per_10m_rows": round((self.cpu_seconds + self.broker_cpu_seconds) / rows * 1e7, 3),
            "own_cpu_seconds_per_10m_rows": round(self.cpu_seconds / rows * 1e7, 3),
            "broker_cpu_seconds_per_10m_rows": round(self.broker_cpu_seconds / rows * 1e7, 3),
            "rows_measured": rows,
            "seconds": round(self.seconds, 3),
            "start_seconds": round(self.start_seconds, 3),
            "rows_out": self.results.height,
        }


class Contest:
    def __init__(self, task: Task, broker: int, begin: Callable[[], Running]) -> None:
        """`broker`: its process. `begin`: starts the system."""
        self._task, self._broker, self._begin = task, broker, begin
        self._running: Running | None = None
        self._reading = Reading(task.servers, task.target)

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._running is not None:
            self._running.close()
        self._reading.end()

    def run(self, sales: Sales, path: Path, numbers: npt.NDArray[np.int64], warm: int, right: pl.DataFrame) -> Measured:
        writing = Writing(self._task)
        writing.write(sales.messages(path, numbers, 0, warm))
        writing.commit()
        writing.write(sales.messages(path, numbers, warm, sales.rows))
        os.sync()  # what the disk still has to write of the rows would slow down whoever is measured
        began = time.monotonic()
        self._running = self._begin()
        first = right.filter(pl.col("window_start") < sales.closed_by(warm)).height
        self._until(lambda: len(self._reading.results) >= first, "the first results", WARM_SECONDS)
        start_seconds = time.monotonic() - began
        before, broker_before = self._used(), cpu_seconds(self._broker)
        released = time.monotonic()
        writing.commit()
        self._until(lambda: len(self._reading.results) >= right.height, "the last results", STUCK_SECONDS)
        after, broker_after = self._used(), cpu_seconds(self._broker)
        self._rest(QUIET_SECONDS)
        results = self._reading.end()
        seconds = max(result.at for result in results[: right.height]) - released
        found = results_of(result.value for result in results)
        return Measured(seconds, after - before, broker_after - broker_before, start_seconds, found)

    def _used(self) -> float:
        assert self._running is not None
        root = self._running.process.pid
        return sum(map(cpu_seconds, [root, *descendants(root)]))

    def _until(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        """In so many seconds since the newest result."""
        assert self._running is not None
        known, since = -1, time.monotonic()
        while not done():
            if problem := self._running.problem() or self._reading.problem:
                raise Retry(f"{self._task.system}: {problem}")
            if len(self._reading.results) > known:
                known, since = len(self._reading.results), time.monotonic()
            if time.monotonic() - since > seconds:
                raise Retry(f"{self._task.system}: {what}: not within {seconds:.0f} s; there are {known}")
            time.sleep(POLL_SECONDS)

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._until(lambda: time.monotonic() > end, "a rest", STUCK_SECONDS)


class Writing:
    """Rows go into a transaction, which nobody sees before it is committed."""

    def __init__(self, task: Task) -> None:
        from confluent_kafka import Producer

        self._topic, self._refused = task.source, 0
        self._producer = Producer(
            {
                "bootstrap.servers": task.servers,
                "transactional.id": f"rows-{task.source}",
                "transaction.timeout.ms": 900_000,
                "linger.ms": 50,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(60.0)
        self._producer.begin_transaction()

    def write(self, messages: Iterable[Message]) -> None:
        producer, topic, deadline = self._producer, self._topic, time.monotonic() + WRITE_SECONDS
        for partition, key, value in messages:
            while True:
                try:
                    producer.produce(topic, value, key, partition)
                    break
                except BufferError:
                    producer.poll(0.05)
                    if time.monotonic() > deadline:
                        raise Retry("rows were not written to the broker in time") from None
        if producer.flush(WRITE_SECONDS):
            raise Retry("rows were not written to the broker in time")

    def commit(self) -> None:
        self._producer.commit_transaction(60.0)
        self._producer.begin_transaction()


class Reading:
    """Reads the committed messages of a topic all the while."""

    def __init__(self, servers: str, topic: str) -> None:
        self.results: list[Result] = []
        self.problem = ""
        self._servers, self._topic = servers, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reading")
        self._thread.start()

    def end(self) -> list[Result]:
        self._stop.set()
        self._thread.join()
        return self.results

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "reading", "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._servers, "fetch.wait.max.ms": 20, "log_level": 0, **settings})
        count = len(consumer.list_topics(self._topic, timeout=60.0).topics[self._topic].partitions)
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(count)])
        while not self._stop.is_set():
            messages = consumer.consume(10_000, 0.02)
            at = time.monotonic()
            for message in messages:
                value, error = message.value(), message.error()
                if error is not None or value is None:
                    self.problem = f"the results cannot be read: {error or 'a message without a value'}"
                else:
                    self.results.append(Result(at, value))
        consumer.close()
