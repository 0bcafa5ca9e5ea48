"""`guarantee="at-most-once"` over every built-in sink that shows rows outside: its worker is killed between the commit
and what is shown of it, and right after that. What was interrupted is lost; nothing is ever shown twice."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import redis as client_library

import seep
from benchmarks.servers.kafka import KafkaBroker
from seep.connectors.contract import Committed, Opening, Publish
from seep.connectors.own import OwnSink
from seep.running.job import Job
from tests.kafka import Reader, make_topic
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, send_signal, until, written_rows
from tests.servers import RedisServer

MOMENTS = ("before", "after")


class Held:
    """A sink around another one: with a file named like a moment it stops there, and says in which process."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self.inner, self.folder, self.kind = inner, folder, inner.kind

    def prepared(self) -> Held:
        ready = getattr(self.inner, "prepared", None)
        return Held(self.inner if ready is None else ready(), self.folder)

    def open(self, opening: Opening) -> Publish:
        publish = self.inner.open(opening)

        def held(commits: Sequence[Committed]) -> int:
            rows = any(commit.record is not None for commit in commits)
            self._stop("before", rows)
            answer: int = publish(commits)
            self._stop("after", rows)
            return answer

        return held

    def _stop(self, moment: str, rows: bool) -> None:
        while rows and (self.folder / moment).exists():
            said = self.folder / f"{os.getpid()}"
            said.write_text(str(os.getpid()))
            said.replace(self.folder / f"at-{moment}")  # never seen half written
            time.sleep(0.01)


class Server(ThreadingHTTPServer):
    """Keeps all that it takes; what comes twice is there twice."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.numbers: list[int] = []
        self.keys: list[str] = []
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/rows"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys.append(self.headers["Idempotency-Key"])
        refuses = self.server.refuses
        if not refuses:
            self.server.numbers += [json.loads(line)["n"] for line in sent.splitlines()]
        self.send_response(503 if refuses else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


class Appending(seep.Sink):
    """Would show rows twice if they came twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []

    def write(self, epoch: int, batch: Any) -> None:
        self.lines += [f"{n}\n" for n in batch.column("n").to_pylist()]

    def commit(self, epoch: int) -> None:
        with self.path.open("a") as file:
            file.write("".join(self.lines))
        self.lines = []


def in_topic(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    broker: KafkaBroker = request.getfixturevalue("kafka")
    topic = make_topic(broker.address, "at-most-once")
    reader = Reader(broker.address, topic)
    request.addfinalizer(reader.close)

    def messages() -> list[int]:
        for _ in range(20):  # until nothing more comes, or for a while
            there = len(reader.messages)
            reader.look(0.3)
            if there == len(reader.messages):
                break
        return [json.loads(message.value() or b"")["n"] for message in reader.messages]

    return seep.KafkaSink(topic, servers=broker.address), messages


def in_server(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    found: Server = request.getfixturevalue("server")
    return seep.HttpSink(found.url), lambda: list(found.numbers)


def in_redis(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    found: RedisServer = request.getfixturevalue("redis")
    there = client_library.Redis.from_url(found.url)
    return seep.RedisSink("n:", url=found.url, key="n"), lambda: [int(name[2:]) for name in there.keys("n:*")]


def in_files(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    return seep.FileSink(folder / "rows", format="jsonl"), lambda: [row["n"] for row in written_rows(folder / "rows")]


def on_console(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    home: Path = request.getfixturevalue("home")

    def lines() -> Iterator[int]:
        for log in home.glob("*/workers/*.log"):
            yield from (int(n) for n in re.findall(r'^out: {"n": (\d+)}$', log.read_text(), re.MULTILINE))

    return seep.ConsoleSink(), lambda: list(lines())


def in_own(request: pytest.FixtureRequest, folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    path = folder / "lines"
    path.touch()
    return OwnSink(Appending(path)), lambda: [int(line) for line in path.read_text().splitlines(keepends=True)]


SINKS = {
    "kafka": in_topic,
    "http": in_server,
    "redis": in_redis,
    "files": in_files,
    "console": on_console,
    "own": in_own,
}


def kill_at(job: Job, moment: str, folder: Path) -> None:
    (folder / moment).touch()
    until((folder / f"at-{moment}").exists, f"a publish to stand {moment} it", 60.0)
    send_signal(int((folder / f"at-{moment}").read_text()), signal.SIGKILL)
    (folder / moment).unlink()
    advance(job, 40, "out", 60.0)


QUICK = ("http", "files")
"""The others are the same machine with another outside."""


@pytest.mark.server
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SINKS])
def test_a_kill_loses_what_it_interrupts_and_doubles_nothing(
    name: str, begin: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sink, shown = SINKS[name](request, tmp_path)
    flow = seep.Flow("once", epoch="20ms", checkpoint="200ms", guarantee="at-most-once")
    source = seep.GeneratorSource(lambda i: {"n": i}, rate=500)
    rows = flow.source("numbers", source)
    rows.sink("out", Held(sink, tmp_path))
    job = begin(flow, workers=2)
    until(shown, "the first rows", 60.0)
    for moment in MOMENTS:
        kill_at(job, moment, tmp_path)
    job.stop(drain=True)
    job.wait(60.0)
    found = shown()
    assert len(set(found)) == len(found), "shown twice"
    lost = [missing(split, found, source) for split in range(source.splits)]
    assert any(lost), "nothing was interrupted"
    # How much a kill loses is a matter of time; it is one stretch of what each split has committed.
    assert all(len(stretches) <= len(MOMENTS) for stretches in lost)


def missing(split: int, found: list[int], source: seep.GeneratorSource) -> list[list[int]]:
    """The stretches of a split that are not shown, though some of it behind them is."""
    given = [n for n in range(max(found) + 1) if n // source.block_rows % source.splits == split]
    stretches = [(shown, list(some)) for shown, some in groupby(given, set(found).__contains__)]
    if not stretches[-1][0]:
        stretches.pop()  # not given yet when the flow was drained
    return [some for shown, some in stretches if not shown]


@pytest.mark.timeout(120)
def test_nobody_waits_for_an_outside_that_is_away(begin: Start, server: Server) -> None:
    """It answers 503 for a while: what is sent meanwhile is lost, each request is made once, and the flow goes on."""
    flow = seep.Flow("away", epoch="20ms", guarantee="at-most-once")
    rows = flow.source("numbers", seep.GeneratorSource(lambda i: {"n": i}, rate=500))
    rows.sink("out", seep.HttpSink(server.url))
    job = begin(flow, workers=1)
    until(lambda: server.numbers, "the first rows", 60.0)
    server.refuses = True
    advance(job, 40, "out")
    server.refuses, there = False, len(server.numbers)
    until(lambda: len(server.numbers) > there + 100, "rows after that", 60.0)
    job.stop(drain=True)
    job.wait(60.0)
    assert len(set(server.keys)) == len(server.keys), "a request was made again"
    assert len(set(server.numbers)) == len(server.numbers)
    assert set(range(max(server.numbers))) - set(server.numbers), "nothing was lost: it was never away"
