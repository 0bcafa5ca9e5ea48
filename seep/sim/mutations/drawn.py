"""Breakages drawn by seed over the pure machines: a comparison flipped to its opposite, an int off by one, a statement
dropped.

Left out, because nobody could see them: notes and counters for people (`_note`, `count`, statistics), docstrings,
types, and numbers that only tune (named constants of a module, defaults of parameters): one more is as right. So is
all of `seep.partition.pace`: how much a source reads is in its log before anybody acts on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from seep.sim.mutations.patch import TREE, Mutant, source_of

FOLDERS = ("seep/partition", "seep/control", "seep/state")
FLIPS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
}
UNSEEN = (
    "_note(",
    ".count(",
    "counts[",
    "self.counts",
    "statistics",
    "self.rows",
    "self.sum",
    "raise ",
    "assert ",
    "maxlen",
)


def modules() -> list[str]:
    found = [path for folder in FOLDERS for path in sorted((TREE / folder).glob("*.py"))]
    names = [str(path.relative_to(TREE))[:-3].replace("/", ".") for path in found]
    return [name for name in names if not name.endswith(("__init__", "contract", "pace"))]


def draw(count: int, seed: int) -> list[Mutant]:
    """That many different breakages, each module's share by its number of places."""
    places = [mutant for module in modules() for mutant in candidates(module)]
    return Random(seed).sample(places, min(count, len(places)))


def candidates(module: str) -> Iterator[Mutant]:
    source = source_of(module)
    lines = source.splitlines()
    tree = ast.parse(source)
    hidden = _hidden(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if not line or line in hidden or getattr(node, "end_lineno", line) != line:
            continue
        text = lines[line - 1]
        if any(word in text for word in UNSEEN):
            continue
        for what, start, end, new in _changes(node, text):
            changed = text[:start] + new + text[end:]
            name = f"{module.removeprefix('seep.')}:{line} {what}"
            yield Mutant(name, f"{text.strip()}  ->  {changed.strip()}", module, text, changed, line=line)


def _hidden(tree: ast.Module) -> set[int]:
    """Lines of imports, docstrings, class bodies' declarations and annotations, named constants, signatures."""
    hidden: set[int] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            hidden.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            hidden.update(range(node.lineno, node.body[0].lineno))
        if (
            isinstance(node, ast.Import | ast.ImportFrom | ast.AnnAssign)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__")
        ):
            hidden.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return hidden


def _changes(node: ast.AST, text: str) -> Iterator[tuple[str, int, int, str]]:
    """(what, first column, last column, new text); columns are of ASCII code, before any comment."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and node.comparators[0].lineno == node.lineno:
        old, new = FLIPS[type(node.ops[0])]
        start, end = node.left.end_col_offset or 0, node.comparators[0].col_offset
        if text.isascii():
            yield f"{old.strip()} to {new.strip()}", start, end, text[start:end].replace(old, new)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        start, end = node.col_offset, node.end_col_offset or 0
        if text.isascii() and text[start:end].isdigit():
            for by in (1, -1):
                yield f"{by:+d}", start, end, f"({node.value + by})"
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete | ast.Expr | ast.Continue | ast.Break):
        if not text.strip().startswith(("class ", "def ")):
            yield "dropped", node.col_offset, node.end_col_offset or len(text), "pass"
