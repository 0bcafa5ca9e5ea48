"""What type checkers see of `seep` is what is there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import seep

APP = """
from typing import NamedTuple, assert_type

import seep
from seep import count, every, session, tumbling


class Word(NamedTuple):
    word: str


class Seen(seep.Operator):
    n = seep.ValueState(int, default=0)

    def on_row(self, row: Word, ctx: object) -> None:
        self.n.value += 1


flow = seep.Flow("words")
words = flow.source("words", seep.MemorySource([{"word": "a"}], schema=Word)).key_by("word")
assert_type(words.aggregate(n=count()).named("running"), seep.Table)
assert_type(words.aggregate(emit="close", n=count()), seep.Stream)
assert_type(words.window(tumbling("1m"), n=count()), seep.Stream)
assert_type(words.window(tumbling("1m"), n=count()).late, seep.Stream)
assert_type(words.window(session("1m"), emit="update", n=count()), seep.Table)
assert_type(words.window(session("1m"), emit=every("1s"), n=count()).changes(), seep.Stream)
words.apply(Seen, out=Word).collect("seen")
assert_type(seep.testing.Driver(flow).late("x")[0], dict[str, object])  # E
flow.sink("words")  # E
"""


def test_the_typed_names_are_the_lazy_ones() -> None:
    tree = ast.parse(Path(seep.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    } - {("testing", "seep")}
    assert typed == set(seep._HOME_OF.items())


def test_an_app_from_outside_sees_the_types(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    beside = {**os.environ, "PYTHONPATH": str(Path(seep.__file__).parents[1])}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "app.py"]
    done = subprocess.run(command, cwd=tmp_path, env=beside, capture_output=True, text=True)
    told = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [int(line.split(":")[1]) for line in told] == [
        number for number, line in enumerate(APP.splitlines(), 1) if line.endswith("# E")
    ], done.stdout + done.stderr
