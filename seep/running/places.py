"""Savepoints in an object store: the same files, the manifest last. Without one there is no savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from seep.errors import DataLoss, Misuse
from seep.runtime.addresses import shown
from seep.runtime.stores.files import Files
from seep.runtime.stores.objects import place_of

MANIFEST = "manifest.json"


def check_empty(url: str) -> None:
    """Refuse an address where something is."""
    places, target = place_of(url)
    if _has_manifest(places, target, url):
        raise Misuse(f"savepoint {shown(url)!r} exists already; choose another address")


def sent(path: Path, url: str) -> None:
    """Copy a savepoint there."""
    places, target = place_of(url)
    parts = [found for found in sorted(path.rglob("*")) if found.is_file() and found.name != MANIFEST]
    try:
        for part in (*parts, path / MANIFEST):
            to = f"{target}/{part.relative_to(path).as_posix()}"
            places.create_dir(to.rpartition("/")[0], recursive=True)
            pa.fs.copy_files(str(part), to, pa.fs.LocalFileSystem(), places)
    except (OSError, pa.ArrowException) as problem:
        said = " ".join(str(problem).split())
        raise DataLoss(f"savepoint {shown(url)!r} could not be written: {said}; it is in {path}") from problem


def fetched(url: str, home: Path) -> Path:
    """A copy of the savepoint there."""
    places, source = place_of(url)
    if not _has_manifest(places, source, url):
        raise Misuse(f"there is no savepoint at {shown(url)}")
    Files(sync=False).make_directory(home)
    pa.fs.copy_files(source, str(home), places, pa.fs.LocalFileSystem())
    return home


def _has_manifest(places: Any, folder: str, url: str) -> bool:
    try:
        found = places.get_file_info(f"{folder}/{MANIFEST}")
    except (OSError, pa.ArrowException) as problem:
        raise Misuse(f"savepoint {shown(url)!r} cannot be reached: {' '.join(str(problem).split())}") from None
    return bool(found.type != pa.fs.FileType.NotFound)
