"""A topic that is written to all the time, a keyed window over it, and somebody who reads the results all the while.

Row i is of time i / rate, so what a window must hold follows from the number of rows alone. The sink can be asked to
stop between writing and committing, so that it can be killed there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import seep
from seep.connectors.kafka.publisher import Publisher
from seep.errors import Retry

SOURCE, WINDOWS, SINK = "rows", "windows", "out"
IN, OUT = "in", "out"
SPLITS, OUT_PARTITIONS = 3, 2
KEYS = 24
PARTS = 2
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
WINDOW = timedelta(milliseconds=100)
FLUSH_SECONDS = 60.0


class Hesitant(Publisher):
    """With a file `hold`, stops after its messages are written and before they are committed, and says who it is."""

    def __init__(self, folder: Path, *rest: Any) -> None:
        super().__init__(*rest)
        self._folder = folder

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
    counted.scale(start=PARTS).sink(SINK, HesitantSink(Path(folder), servers))
    return flow


def key_of(number: int) -> int:
    return number * 7919 % KEYS


class Writing:
    """Rows go to the topic at a steady pace until it is told to stop; a key's rows all go to one partition."""

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
                key = key_of(number)
                row = json.dumps({"key": f"k{key}", "n": number, "at": at.isoformat()})
                producer.produce(IN, row.encode(), partition=key % SPLITS, on_delivery=self._delivered)
                self.count = number + 1
            producer.poll(0)
        self._refused += producer.flush(FLUSH_SECONDS)

    def _delivered(self, error: Any, _message: Any) -> None:
        self._refused += error is not None


class Result(NamedTuple):
    at: float
    """When it was read, on the monotonic clock."""
    key: str
    window: int
    rows: int
    sum: int


class Reading:
    """Reads the committed messages of the output topic all the while."""

    def __init__(self, servers: str) -> None:
        self.results: list[Result] = []
        self.newest: dict[str, int] = {}
        """By key: its latest window."""
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reading")
        self._thread.start()

    def end(self) -> list[Result]:
        self._stop.set()
        self._thread.join()
        return self.results

    def reached(self) -> int:
        """Of every key this window was seen, or a later one."""
        return min(self.newest.values()) if len(self.newest) == KEYS else -1

    def _read(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reading",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(OUT, number, 0) for number in range(OUT_PARTITIONS)])
        while not self._stop.is_set():
            for message in consumer.consume(10_000, 0.05):
                if message.error() is None:
                    self._take(json.loads(message.value() or b""))
        consumer.close()

    def _take(self, row: dict[str, Any]) -> None:
        window = (datetime.fromisoformat(row["window_start"]) - BEGAN) // WINDOW
        self.results.append(Result(time.monotonic(), row["key"], window, row["count"], row["sum"]))
        self.newest[row["key"]] = max(window, self.newest.get(row["key"], -1))


def expected(rows: int, rate: float) -> dict[tuple[str, int], tuple[int, int]]:
    """By key and window, in plain Python.

    >>> expected(3, 20.0)
    {('k0', 0): (1, 0), ('k23', 0): (1, 1), ('k22', 1): (1, 2)}
    """
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    width = WINDOW // timedelta(microseconds=1)
    for number in range(rows):
        place = f"k{key_of(number)}", number * 1_000_000 // int(rate) // width
        counts[place] += 1
        sums[place] += number
    return {place: (count, sums[place]) for place, count in counts.items()}


def judged(results: Iterable[Result], rows: int, rate: float) -> dict[str, int]:
    """What is wrong with what was read.

    >>> one = Result(0.0, "k0", 0, 1, 0)
    >>> judged([one, one], 1, 20.0)
    {'lost': 0, 'duplicated': 1, 'reordered': 0, 'wrong': 0}
    """
    right, seen, latest = expected(rows, rate), set[tuple[str, int]](), dict[str, int]()
    duplicated = reordered = wrong = 0
    for result in results:
        place = result.key, result.window
        duplicated += place in seen
        reordered += result.window < latest.get(result.key, -1)
        wrong += right.get(place) != (result.rows, result.sum)
        seen.add(place)
        latest[result.key] = max(result.window, latest.get(result.key, -1))
    return {"lost": len(right.keys() - seen), "duplicated": duplicated, "reordered": reordered, "wrong": wrong}
