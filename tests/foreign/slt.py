"""Reads sqllogictest scripts: statements, and queries with the rows they should give.

The format is that of SQLite's test suite as later engines extended it: a record begins with a line such as
``statement ok`` or ``query IT rowsort``, goes on with SQL, and a query's rows follow a line ``----``. ``include`` puts
another file in place. Loops and substitutions are refused, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PASSED_OVER = ("sleep", "subtest", "connection", "hash-threshold", "control sortmode", "control resultmode", "system")


@dataclass(frozen=True)
class Record:
    """One step of a script."""

    kind: str
    """``statement``, ``query``, ``error`` (one of both that must fail) or ``refused`` (a command without a reader)."""
    sql: str
    place: str
    sort: str = "nosort"
    rows: tuple[str, ...] = ()


def records(path: Path) -> Iterator[Record]:
    """The steps of a script in order, those of included files among them."""
    for block, line in _blocks(path.read_text()):
        yield from _records(path, block, line)


def included(path: Path) -> set[Path]:
    """The files that this one includes: they are parts, not scripts of their own."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {found for words in lines if words[:1] == ["include"] and len(words) > 1 for found in _files(path, words[1])}


def _blocks(text: str) -> Iterator[tuple[list[str], int]]:
    block: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not (line.startswith("#") and not block):
            if not block:
                start = number
            block.append(line)
        elif block:
            yield block, start
            block = []
    if block:
        yield block, start


def _records(path: Path, block: list[str], line: int) -> Iterator[Record]:
    place = f"{path.name}:{line}"
    while block and (block[0].startswith(("skipif", "onlyif", "#")) or _is_command(block[0])):
        words = block.pop(0).split()
        if words[0] == "onlyif":
            return  # meant for one engine only
        if words[0] == "include" and len(words) > 1:
            for file in sorted(_files(path, words[1])):
                yield from records(file)
        elif words[0] in ("control", "loop", "for", "let", "halt") and " ".join(words[:2]) not in _PASSED_OVER:
            yield Record("refused", f"{words[0]} in a script", place)
    if not block:
        return
    head, body = block[0].split(), block[1:]
    if head[0] not in ("statement", "query") or (len(head) > 1 and head[1] == "count"):
        return
    split = next((at for at, text in enumerate(body) if text.strip() == "----"), len(body))
    sql = "\n".join(body[:split])
    if len(head) > 1 and head[1] == "error":
        yield Record("error", sql, place)
    elif head[0] == "statement":
        yield Record("statement", sql, place)
    else:
        sort = next((word for word in head[2:] if word in ("rowsort", "valuesort", "nosort")), "nosort")
        yield Record("query", sql, place, sort, tuple(body[split + 1 :]))


def _is_command(line: str) -> bool:
    words = line.split()
    return bool(words) and words[0] in (
        "include", "control", "loop", "for", "let", "halt", "sleep", "subtest", "connection", "hash-threshold"
    )  # fmt: skip


def _files(path: Path, pattern: str) -> set[Path]:
    return {found.resolve() for found in path.parent.glob(pattern.removeprefix("./"))}
