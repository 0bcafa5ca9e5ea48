"""What sinks of every kind have shown, over several lives of a flow, is each row once, in order for each key.

A life that ends by a savepoint shows nothing after it here; whoever starts from it is another run.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import seep
from tests.conformance.saved import Lives
from tests.scenarios.conftest import redis as redis
from tests.servers import RedisServer

COUNT, KEYS, EPOCH_ROWS = 120, 5, 2
Rows = list[dict[str, Any]]


class Gated(seep.MemorySource):
    """The rows up to what the gate says last."""

    def __init__(self, gate: list[int]) -> None:
        super().__init__([{"k": f"k{n % KEYS}", "n": n} for n in range(COUNT)], per_epoch=EPOCH_ROWS)
        self.gate = gate

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Any:
        if until is None and (position or 0) >= self.gate[-1]:
            return None
        return super().read(split, position, until, limit_rows, now_ms)


class Log(seep.Sink):
    """Lines of a file, each an epoch of a writer with its rows; what was committed is not written again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, Rows] = {}

    def __copy__(self) -> Log:
        return Log(self.path)  # as in a worker: here nothing is pickled

    def write(self, epoch: int, batch: Any) -> None:
        self.rows[epoch] = batch.to_pylist()

    def commit(self, epoch: int) -> None:
        known = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        mark = max((at for writer, at, _ in known if writer == self.writer), default=-1)
        new = [row for at, rows in sorted(self.rows.items()) if at > mark for row in rows]
        with self.path.open("a") as file:
            file.write(json.dumps([self.writer, max(mark, epoch), new]) + "\n")
        self.rows = {}


@contextmanager
def server() -> Iterator[tuple[str, dict[str, dict[str, Rows]]]]:
    """One that knows by its key what it has got; by path and key, the rows."""
    got: dict[str, dict[str, Rows]] = defaultdict(dict)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            rows = [json.loads(line) for line in body.splitlines()]
            assert got[self.path].setdefault(self.headers["Idempotency-Key"], rows) == rows
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}", got
    running.shutdown()
    running.server_close()


def in_lives(lives: Lives, sink: Callable[[str], Any]) -> None:
    gate = [40]

    def flow(parts: int) -> seep.Flow:
        made = seep.Flow("sinks", epoch="20ms")
        rows = made.source("rows", Gated(gate))
        rows.sink("plain", sink("plain"))
        sums = rows.key_by("k").aggregate(count=seep.count(), sum=seep.total("n")).named("op").scale(start=parts)
        sums.sink("sums", sink("sums"))
        return made

    lives.begin(flow(1))
    lives.advance(3)
    lives.resume()
    lives.scale("sums", 2)
    lives.until(lambda: lives.read("rows") == gate[-1], "what there is")
    saved = lives.save(shown=True)
    gate.append(80)
    lives.begin(flow(2), saved)
    for _ in range(2):
        lives.advance(3)
        lives.kill("sums")
        lives.resume()
    lives.until(lambda: lives.read("rows") == gate[-1], "what there is now")
    saved = lives.save(shown=True)
    gate.append(COUNT)
    lives.begin(flow(3), saved)
    lives.advance(2)
    lives.resume()
    lives.end()


def check(plain: Rows, sums: Rows) -> None:
    assert [int(row["n"]) for row in plain] == list(range(COUNT))
    found: dict[str, list[int]] = defaultdict(list)
    for row in sums:
        assert (row["change"] == "insert") == (row["k"] not in found)
        found[row["k"]].append(int(row["sum"]))
    wanted = {f"k{key}": [sum(range(key, n + 1, KEYS)) for n in range(key, COUNT, KEYS)] for key in range(KEYS)}
    assert found == wanted


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_files(form: str, tmp_path: Path) -> None:
    in_lives(Lives(tmp_path / "lives"), lambda name: seep.FileSink(tmp_path / name, format=form))

    def read(name: str) -> Rows:
        """In the order in which they came to be."""
        found: Rows = []
        for path in sorted((tmp_path / name).iterdir(), key=lambda path: path.stat().st_mtime_ns):
            flow = seep.Flow("read")
            flow.source("files", seep.FileSource(path)).collect("rows")
            found += seep.run(flow)["rows"].to_pylist()
        return found

    check(read("plain"), read("sums"))


def test_a_users_own(tmp_path: Path) -> None:
    in_lives(Lives(tmp_path / "lives"), lambda name: Log(tmp_path / name))

    def read(name: str) -> Rows:
        return [row for line in (tmp_path / name).read_text().splitlines() for row in json.loads(line)[2]]

    check(read("plain"), read("sums"))


def test_a_web_server(tmp_path: Path) -> None:
    with server() as (url, got):
        in_lives(Lives(tmp_path / "lives"), lambda name: seep.HttpSink(f"{url}/{name}"))
    plain, sums = ([row for rows in got[f"/{name}"].values() for row in rows] for name in ("plain", "sums"))
    check(plain, sums)


@pytest.mark.server
@pytest.mark.parametrize("form", ["hash", "json"])
def test_redis(redis: RedisServer, form: str, tmp_path: Path) -> None:
    in_lives(
        Lives(tmp_path / "lives"),
        lambda name: seep.RedisSink(f"{name}:", url=redis.url, key="k", format=form),
    )
    client: Any = Redis.from_url(redis.url, decode_responses=True)
    found = {
        key: {name: int(value) for name, value in held.items() if name != "k"}
        for key in (f"{name}:k{number}" for name in ("plain", "sums") for number in range(KEYS))
        for held in [client.hgetall(key) if form == "hash" else json.loads(client.get(key))]
    }
    client.close()
    numbers = {number: range(number, COUNT, KEYS) for number in range(KEYS)}
    assert found == {f"plain:k{at}": {"n": of[-1]} for at, of in numbers.items()} | {
        f"sums:k{at}": {"count": len(of), "sum": sum(of)} for at, of in numbers.items()
    }
