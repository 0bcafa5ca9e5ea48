"""An app with ends of its own, and one that listens: all processes are killed, `--resume` goes on, exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from seep.backends.process import end_workers
from seep.cli import client
from tests.scenarios.oracles import until
from tests.scenarios.test_controller_killed import Program
from tests.servers import free_port

COUNT = 3_000
APP = """
import json
from pathlib import Path

import seep

HERE = Path({here!r})


class Numbers(seep.Source):
    schema = {{"n": int}}
    partitions = 2

    def read(self, position):
        at = position or 0
        size = 1000 if (HERE / "gate").exists() else 2
        rows = [(2 * n + self.partition,) for n in range(at, min(at + size, {count}))]
        return [rows], at + size if at + size < {count} else None


class Log(seep.Sink):
    def __init__(self, path):
        self.path = path
        self.rows = {{}}

    def write(self, epoch, batch):
        self.rows[epoch] = batch.column("n").to_pylist()

    def commit(self, epoch):
        known = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        mark = max((line["epoch"] for line in known if line["writer"] == self.writer), default=-1)
        new = [n for at, rows in sorted(self.rows.items()) if at > mark for n in rows]
        with self.path.open("a") as file:
            file.write(json.dumps({{"writer": self.writer, "epoch": max(mark, epoch), "rows": new}}) + "\\n")
        self.rows = {{}}


flow = seep.Flow("left", epoch="20ms", checkpoint="200ms")
flow.source("numbers", Numbers()).key_by("n").dedupe("n").named("once").sink("out", Log(HERE / "out"))
flow.source("posted", seep.HttpSource({port}, schema={{"n": int}})).sink("posts", Log(HERE / "posts"))
"""


@pytest.fixture
def program(tmp_path: Path, home: Path) -> Iterator[Program]:
    one = Program(tmp_path, home)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.kill()


def rows_in(path: Path) -> list[Any]:
    return [n for line in path.read_text().splitlines() for n in json.loads(line)["rows"]] if path.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_all_processes_are_killed(program: Program, tmp_path: Path) -> None:
    port = free_port()
    program.app.write_text(APP.format(here=str(tmp_path), count=COUNT, port=port))
    kept: list[int] = []

    def post(count: int) -> None:
        sent = b"".join(b'{"n": %d}\n' % n for n in range(len(kept), len(kept) + count))
        assert httpx.post(f"http://127.0.0.1:{port}/", content=sent).status_code == 200
        kept.extend(range(len(kept), len(kept) + count))

    def listens() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/").status_code == 405
        except httpx.ConnectError:
            return False

    program.run()
    until(program.answers, "the flow to run", 60)
    until(listens, "somebody to listen", 60)
    post(50)
    goal = len(rows_in(tmp_path / "out")) + 40
    until(lambda: len(rows_in(tmp_path / "out")) > goal, "rows", 60)
    post(20)
    program.kill()
    end_workers(program.directory)
    program.run("--resume")
    until(program.answers, "the flow to run", 60)
    until(listens, "somebody to listen", 60)
    (tmp_path / "gate").touch()
    until(lambda: len(rows_in(tmp_path / "out")) == 2 * COUNT, "all numbers", 60)
    post(30)
    client.ask("left", "POST", "stop", {"drain": True})
    code, output = program.wait(60)
    assert code == 0, output
    assert sorted(rows_in(tmp_path / "out")) == [*range(2 * COUNT)]
    assert rows_in(tmp_path / "posts") == kept
