"""Finds the cases of a folder, and judges them file by file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.foreign import ksql, records, scripts, slt
from tests.foreign.verdicts import UNSAID, Verdict

_SCRIPTS = (".slt", ".slt.part", ".test")


def files(folder: Path) -> list[Path]:
    """What can be a case of its own: parts that a script includes are run by it."""
    found = sorted(path.resolve() for path in folder.rglob("*") if path.is_file())
    parts = {part for path in found if path.name.endswith(_SCRIPTS) for part in slt.included(path)}
    return [path for path in found if path not in parts]


def judged(path: Path, folder: Path) -> Iterator[Verdict]:
    """The verdicts on all cases of a file."""
    name = folder.name if path.parent == folder.resolve() else str(path.relative_to(folder.resolve()).parent)
    if path.name.endswith(_SCRIPTS):
        yield from scripts.judge(path, name)
    elif path.suffix == ".json" and ksql.readable(path):
        yield from records.judge(path, name)
    else:
        yield Verdict(f"{name}/{path.name}", UNSAID, "no reader for this format")
