"""Stream of Redis -> counts by key -> hashes of Redis, while workers and the server itself are killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
import redis as client_library

import seep
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, until
from tests.servers import RedisServer

ROWS = 6_000
KEYS = 13

pytestmark = pytest.mark.server


def feed(url: str, numbers: range) -> None:
    """Each number once, whatever the server does: its id is its own, and one that is there is refused."""
    there = client_library.Redis.from_url(url)
    for n in numbers:
        while True:
            try:
                there.xadd("numbers", {"key": f"k{n * 7919 % KEYS}", "n": n}, id=f"{n + 1}-0")
                break
            except client_library.ResponseError:
                if int(there.xinfo_stream("numbers")["last-generated-id"].partition(b"-")[0]) > n:
                    break
                raise
            except client_library.RedisError:
                time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_and_the_server_are_killed(begin: Start, redis: RedisServer) -> None:
    flow = seep.Flow("served", epoch="20ms", checkpoint="200ms")
    schema = {"key": str, "n": int}
    rows = flow.source("numbers", seep.RedisStreamSource("numbers", url=redis.url, schema=schema))
    counts = rows.key_by("key").aggregate(count=seep.count(), sum=seep.total("n")).named("count")
    counts.sink("served", seep.RedisSink("count:", url=redis.url))
    job = begin(flow, workers=3)
    feeding = threading.Thread(target=feed, args=(redis.url, range(ROWS)), daemon=True)
    feeding.start()
    there = client_library.Redis.from_url(redis.url)
    seen: dict[str, int] = {}

    def served() -> dict[str, dict[bytes, bytes]]:
        return {f"k{k}": there.hgetall(f"count:k{k}") for k in range(KEYS)}

    def total() -> int:
        """Whoever looks sees counts that only grow."""
        try:
            found = {key: int(row[b"count"]) for key, row in served().items() if row}
        except client_library.RedisError:
            return 0
        for key, count in found.items():
            assert count >= seen.get(key, 0), f"{key}: {count} after {seen[key]}"
        seen.update(found)
        return sum(found.values())

    victims: list[Any] = ["numbers", redis, "served", redis, "count", redis]
    for step, victim in enumerate(victims, 1):
        goal = ROWS * step // (len(victims) + 2)
        until(lambda goal=goal: total() > goal, f"{goal} rows", 60)  # type: ignore[misc]
        if victim is redis:
            redis.kill()
            time.sleep(0.3)
            redis.start()
        else:
            job.kill(victim, 0)
    until(lambda: total() == ROWS, "all rows", 60)
    feeding.join()
    advance(job, 5, "served")
    expected: Counter[str] = Counter()
    for n in range(ROWS):
        expected[f"k{n * 7919 % KEYS}"] += n
    assert {key: int(row[b"sum"]) for key, row in served().items()} == expected
    assert job.audit()["balanced"]
    job.stop(drain=True)
    job.wait(30.0)
