"""The sink that sends: every epoch arrives, by the same key however often it is sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

import seep
from seep.connectors import httpsink
from seep.connectors.contract import Committed, Opening
from seep.model.arrow import BUCKET
from seep.testing import check_sink
from tests.servers import free_port


class Server(ThreadingHTTPServer):
    """Takes rows once for each key; does what it is told to instead."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys: set[str] = set()
        self.rows: list[Any] = []
        self.faults: list[Any] = []
        self.requests = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        fault = self.server.faults.pop(0) if self.server.faults else 200
        key = self.headers["Idempotency-Key"]
        if fault in (200, "lost") and key not in self.server.keys:
            self.server.keys.add(key)
            self.server.rows += [json.loads(line) for line in sent.splitlines()]
        if fault == "lost":
            self.close_connection = True
            return
        self.send_response(fault)
        self.send_header("Retry-After", "0")
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


def epoch(number: int) -> Committed:
    columns = {"n": [number], BUCKET: pa.array([0], pa.uint16())}
    return Committed(number, pa.RecordBatch.from_pydict(columns), False)


def test_the_sink_keeps_the_contract(server: Server) -> None:
    check_sink(lambda: seep.HttpSink(f"http://127.0.0.1:{server.server_port}/rows"), lambda: server.rows)


def test_what_may_work_later_is_tried_again_with_the_same_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpsink, "WAIT_SECONDS", 0.01)
    sink = seep.HttpSink(f"http://127.0.0.1:{server.server_port}/rows", headers={"X-Who": "me"}).prepared()
    publish = sink.open(Opening("out"))
    server.faults = [503, "lost", 200]
    assert publish([epoch(1)]) == 1
    server.faults = ["lost"] * 3
    with pytest.raises(ConnectionError, match="HttpSink"):
        publish([epoch(2), epoch(3)])
    assert publish([epoch(2), epoch(3)]) == 3
    assert server.rows == [{"n": 1}, {"n": 2}, {"n": 3}]
    server.faults = [400]
    with pytest.raises(seep.Misuse, match="it answers 400, and would again"):
        publish([epoch(4)])
    nobody = seep.HttpSink(f"http://127.0.0.1:{free_port()}").prepared().open(Opening("out"))
    with pytest.raises(ConnectionError, match="ConnectError"):
        nobody([epoch(1)])


def test_at_most_once_sends_each_epoch_a_single_time(server: Server) -> None:
    sink = seep.HttpSink(f"http://127.0.0.1:{server.server_port}/rows").prepared()
    publish = sink.open(Opening("out", guarantee="at-most-once"))
    server.faults = [200, "lost", 503, 200]
    with pytest.raises(ConnectionError, match="it answers 503"):
        publish([epoch(number) for number in range(1, 5)])
    assert server.requests == 4
    assert server.rows == [{"n": 1}, {"n": 2}, {"n": 4}]  # the second had arrived, and nobody heard of it


def test_what_cannot_be_sent_is_refused_where_it_is_declared() -> None:
    rows = seep.Flow("refused").source("rows", seep.MemorySource([{"value": b""}]))
    with pytest.raises(seep.Misuse, match="JSON has no bytes"):
        rows.sink("out", seep.HttpSink("http://127.0.0.1:1"))
    with pytest.raises(seep.Misuse, match="give an address"):
        seep.HttpSink("ftp://x")
    with pytest.raises(seep.Misuse, match="must be text in one line"):
        seep.HttpSink("http://x", headers={"a": "b\r\nc: d"})


@pytest.mark.parametrize(
    ("url", "headers", "says"),
    [
        ("http://x", {"X-Straße": "a"}, "cannot be the name of a header"),
        ("http://x", {"a b": "a"}, "cannot be the name of a header"),
        ("http://x", {"": "a"}, "cannot be the name of a header"),
        ("http://x", {1: "a"}, "1 cannot be the name of a header"),
        ("http://x", {"Content-Length": "1"}, "cannot be the name of a header"),
        ("http://x", {"a": "grün"}, "the header 'a' must be text in one line of ASCII"),
        ("http://x", {"a": " b"}, "the header 'a' must be text in one line of ASCII"),
        ("http://x", {"a": 1}, "the header 'a' must be text in one line of ASCII"),
        ("http://x", ["a"], "give a dict from names to values"),
        ("http://x:99999/rows", None, "give an address"),
        ("http://x:port/rows", None, "give an address"),
        ("http://x/\n", None, "give an address"),
        (7, None, "give an address"),
    ],
)
def test_what_no_request_can_carry_is_refused_when_the_sink_is_made(url: Any, headers: Any, says: str) -> None:
    with pytest.raises(seep.Misuse, match=says) as refused:
        seep.HttpSink(url, headers=headers)
    assert "\n" not in str(refused.value)
    assert seep.HttpSink("http://x", headers={"a": "", "Authorization": "Bearer x y"}).headers["a"] == ""
