"""What type checkers see of `seep` is what is there."""

from __future__ import annotations

import ast
from pathlib import Path

import seep


def test_the_typed_names_are_the_lazy_ones() -> None:
    tree = ast.parse(Path(seep.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    } - {("testing", "seep")}
    assert typed == set(seep._HOME_OF.items())
