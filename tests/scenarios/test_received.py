"""HTTP -> counts -> HTTP while workers are killed: every row that was answered with 200 is counted once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

import seep
from tests.conformance.test_http_sink import Server
from tests.conformance.test_http_sink import server as server
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import until
from tests.servers import free_port

ROWS = 2_000


class Sender:
    """Posts numbers one after the other; what it has no answer for, it says."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self.kept: list[int] = []
        self.unsure: list[int] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(timeout=5.0) as client:
            n = 0
            while not self.over.is_set():
                rows = range(n, n + 20)
                sent = b"".join(json.dumps({"n": row}).encode() + b"\n" for row in rows)
                try:
                    answer = client.post(self._url, content=sent)
                except httpx.ConnectError:
                    time.sleep(0.02)  # nobody listens: nothing was sent
                    continue
                except httpx.HTTPError:
                    self.unsure += rows
                else:
                    self.kept += rows if answer.status_code == 200 else []
                n += 20

    def stop(self) -> None:
        self.over.set()
        self._thread.join(10.0)


def numbers(server: Server) -> Counter[int]:
    return Counter(row["n"] for row in server.rows)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_row_that_was_taken_is_there_once(begin: Start, server: Server, tmp_path: Path) -> None:
    port = free_port()
    flow = seep.Flow("http", epoch="20ms", checkpoint="200ms")
    rows = flow.source("posted", seep.HttpSource(port, schema={"n": int}))
    rows.key_by("n").dedupe("n").named("once").sink("out", seep.HttpSink(f"http://127.0.0.1:{server.server_port}"))
    job = begin(flow, workers=3)
    sender = Sender(port)
    victims: list[Any] = ["posted", "out", "posted"]
    for step, victim in enumerate(victims, 1):
        until(lambda step=step: len(server.rows) > ROWS * step // 4, f"some rows after {step}", 40)  # type: ignore[misc]
        job.kill(victim, 0)
    until(lambda: len(server.rows) > ROWS, "all rows", 40)
    sender.stop()
    job.stop(drain=True)
    job.wait(30.0)
    found = numbers(server)
    assert set(found.values()) == {1}, "each once"
    assert set(sender.kept) <= set(found), "what was answered is there"
    assert set(found) <= {*sender.kept, *sender.unsure}
    with pytest.raises(httpx.ConnectError):
        httpx.post(f"http://127.0.0.1:{port}/", content=b"{}")
