"""Somebody who reads the committed results all the while, and what is wrong with what he saw.

What must be there is counted in plain Python from the input topic, read once more at the end.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from benchmarks.topics import BEGAN, BELONGS, IN, KEYS, OUT, OUT_PARTITIONS, SPLITS, WINDOW, consumer_of
from seep.errors import Retry

PATIENCE_SECONDS = 120.0
Counted = dict[tuple[str, int], tuple[int, int]]
"""By key and window: rows, and the sum of their numbers."""


class Result(NamedTuple):
    at: float
    """When it was read, on the monotonic clock."""
    key: str
    window: int
    rows: int
    sum: int
    partition: int
    """Of the topic."""
    offset: int
    belongs: tuple[int, int, int]
    """The sink's partition, the epoch, and how many messages these two have."""


class Reading:
    """Reads the committed messages of the output topic."""

    def __init__(self, servers: str) -> None:
        self.results: list[Result] = []
        self.newest: dict[str, int] = {}
        """By key: its latest window."""
        self.ends: set[tuple[int, int]] = set()
        """Partition and offset of every end that he came to: so far, and no further, it was readable."""
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
        from confluent_kafka import KafkaError

        consumer = consumer_of(self._servers, OUT, range(OUT_PARTITIONS))
        while not self._stop.is_set():
            for message in consumer.consume(10_000, 0.05):
                if message.error() is None:
                    self._take(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    self.ends.add((message.partition(), message.offset()))
        consumer.close()

    def _take(self, message: Any) -> None:
        row = json.loads(message.value())
        window = _window_of(row["window_start"])
        part, epoch, count = map(int, dict(message.headers())[BELONGS].split())
        self.results.append(
            Result(
                time.monotonic(),
                row["key"],
                window,
                row["count"],
                row["sum"],
                message.partition(),
                message.offset(),
                (part, epoch, count),
            )
        )
        self.newest[row["key"]] = max(window, self.newest.get(row["key"], -1))


def counted(rows: Iterable[Mapping[str, Any]]) -> Counted:
    """
    >>> at = ("2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00.100000+00:00")
    >>> counted([{"key": "a", "n": 3 + i, "at": at[i // 2]} for i in range(3)])
    {('a', 0): (2, 7), ('a', 1): (1, 5)}
    """
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for row in rows:
        place = row["key"], _window_of(row["at"])
        counts[place] += 1
        sums[place] += row["n"]
    return {place: (count, sums[place]) for place, count in counts.items()}


def whole_input(servers: str) -> list[dict[str, Any]]:
    """Every row of the input topic, by a client that knows nothing of seep."""
    from confluent_kafka import KafkaError

    consumer, rows, ended = consumer_of(servers, IN, range(SPLITS)), list[dict[str, Any]](), set[int]()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < SPLITS:
        if time.monotonic() > deadline:
            raise Retry(f"the input topic was not read in {PATIENCE_SECONDS:.0f} s")
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                rows.append(json.loads(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return rows


def judged(results: Iterable[Result], right: Counted) -> dict[str, int]:
    """What is wrong with what was read, in the order in which it was read.

    >>> one = Result(0.0, "a", 0, 1, 0, 0, 0, (0, 1, 1))
    >>> judged([one, one], {("a", 0): (1, 0)})
    {'lost': 0, 'duplicated': 1, 'reordered': 0, 'wrong': 0}
    """
    seen, latest = set[tuple[str, int]](), dict[str, int]()
    duplicated = reordered = wrong = 0
    for result in results:
        place = result.key, result.window
        duplicated += place in seen
        reordered += result.window < latest.get(result.key, -1)
        wrong += right.get(place) != (result.rows, result.sum)
        seen.add(place)
        latest[result.key] = max(result.window, latest.get(result.key, -1))
    return {"lost": len(right.keys() - seen), "duplicated": duplicated, "reordered": reordered, "wrong": wrong}


def torn(results: Iterable[Result], ends: Iterable[tuple[int, int]]) -> int:
    """Of how many epochs of a partition of the sink a part was to be seen without the rest: not all of its messages are
    there in the end, or meanwhile what was readable of a partition of the topic ended between two of them.

    >>> two = [Result(0.0, "a", 0, 1, 0, 0, 7, (0, 1, 2)), Result(0.1, "b", 0, 1, 0, 0, 8, (0, 1, 2))]
    >>> torn(two, {(0, 7), (0, 9)}), torn(two, {(0, 8), (0, 9)}), torn(two[:1], {(0, 8)})
    (0, 1, 1)
    """
    offsets: dict[tuple[tuple[int, int, int], int], list[int]] = defaultdict(list)
    count: Counter[tuple[int, int, int]] = Counter()
    for result in results:
        offsets[result.belongs, result.partition].append(result.offset)
        count[result.belongs] += 1
    found = {belongs for belongs, seen in count.items() if seen != belongs[2]}
    stops: dict[int, list[int]] = defaultdict(list)
    for partition, offset in ends:
        insort(stops[partition], offset)
    for (belongs, partition), mine in offsets.items():
        if bisect_right(stops[partition], min(mine)) < bisect_right(stops[partition], max(mine)):
            found.add(belongs)
    return len(found)


def apart_seconds(results: Iterable[Result]) -> list[float]:
    """Of each epoch of a partition of the sink: from its first message that was read to its last. Those of several
    partitions of the topic become readable one after the other; that is Kafka's."""
    times: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for result in results:
        times[result.belongs].append(result.at)
    return [max(mine) - min(mine) for mine in times.values()]


def _window_of(time_text: str) -> int:
    return (datetime.fromisoformat(time_text) - BEGAN) // WINDOW
