"""The pure folders stay pure: the same input gives the same effects, so the simulator can replay a seed.

Checked on the syntax tree, not by running: a clock behind an `if` is found as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE = ("model", "state", "protocol", "partition", "control")

IMPURE_MODULES = {
    "asyncio", "concurrent", "ctypes", "fcntl", "glob", "http", "multiprocessing", "os", "pathlib", "queue",
    "random", "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "weakref", "zmq",
}  # fmt: skip
IMPURE_CALLS = {"hash", "id", "input", "open", "print"}
"""`hash` differs between processes, `id` between runs."""
IMPURE_METHODS = {"now", "utcnow", "today"}
"""Of datetime and date: a clock in disguise."""


def pure_files() -> list[Path]:
    return sorted(path for folder in PURE for path in (ROOT / "seep" / folder).rglob("*.py"))


def impurities(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in IMPURE_MODULES:
                    yield f"line {line}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in IMPURE_MODULES:
                yield f"line {line}: from {node.module} import ..."
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                yield f"line {line}: {node.func.id}()"
            if isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_METHODS:
                owner = node.func.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name in {"datetime", "date", "dt"}:
                    yield f"line {line}: {name}.{node.func.attr}()"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"np.random", "numpy.random"}:
            yield f"line {line}: numpy.random"


def test_the_pure_folders_are_there() -> None:
    assert {path.parent.name for path in pure_files()} >= set(PURE)


@pytest.mark.parametrize("path", pure_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_clock_randomness_thread_socket_or_file(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import choice",
        "def f(x):\n    return hash(x)",
        "def f():\n    import threading",
        "import datetime\ndatetime.datetime.now()",
        "import numpy as np\nnp.random.default_rng()",
        "open('x')",
    ],
)
def test_the_check_itself_finds(source: str) -> None:
    assert list(impurities(source))


def test_the_check_itself_passes_what_is_pure() -> None:
    pure = "import hashlib\nfrom seep.model.ids import KeyRange\nself.random(3)\nmoment.now_ms\n"
    assert list(impurities(pure)) == []
