"""Every module says what it is for, and none grows without end."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for folder in ("seep", "operators", "pyspark_seep", "demo", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
LINES_AT_MOST = 400
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_module(path: Path) -> None:
    source = path.read_text()
    assert ast.get_docstring(ast.parse(source)), "opens with what it is for"
    assert len(source.splitlines()) <= LINES_AT_MOST, "split it"
    assert LEFTOVERS.search(source) is None, "finished or not there"
