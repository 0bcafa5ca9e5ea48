"""What import-linter cannot say: `operators` may import only three places, and only three places may import it.

The layers of seep itself are contracts in pyproject.toml, run here too so that plain `pytest` keeps the law.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPERATORS_MAY_IMPORT = ("seep.model", "seep.state", "seep.partition.contract", "seep.errors")
MAY_IMPORT_OPERATORS = ("flow", "cli", "testing.py", "__init__.py")


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of what a file imports, wherever in the file the import stands."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", python_files("operators"), ids=lambda p: str(p.relative_to(ROOT)))
def test_operators_know_only_the_contract(path: Path) -> None:
    of_seep = [name for name in imports_of(path) if within(name, ("seep",))]
    assert [name for name in of_seep if not within(name, OPERATORS_MAY_IMPORT)] == []


@pytest.mark.parametrize("path", python_files("seep"), ids=lambda p: str(p.relative_to(ROOT)))
def test_who_may_import_operators(path: Path) -> None:
    if path.relative_to(ROOT / "seep").parts[0] in MAY_IMPORT_OPERATORS:
        return
    assert [name for name in imports_of(path) if within(name, ("operators",))] == []


def test_layers() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
