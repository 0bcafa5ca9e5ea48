"""Files that survive a crash: locks between processes, atomic replacement, and names for any operator.

A file is replaced by writing a neighbour, syncing it, renaming it and syncing the directory: a reader sees the old
content or the new, never a mixture, and what was answered stays after a power cut.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seep.runtime.stores.direct import MANY_BYTES, read_at, write_at

if TYPE_CHECKING:  # the command line needs names only, not columns
    from seep.state.ipc import Bytes

LONGEST_NAME = 120


def escape(name: str) -> str:
    """A file name for any text: readable where it can be, distinct always.

    >>> escape("store-minute"), escape("a/b")
    ('store-minute', 'a%2Fb')
    """
    quoted = urllib.parse.quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= LONGEST_NAME:
        return quoted
    return f"{quoted[:LONGEST_NAME]}~{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Exclusive between processes and between threads (each call opens the file anew, and flock goes by opening)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_all(descriptor: int, parts: Iterable[Bytes]) -> None:
    views = [v for v in (memoryview(p).cast("B") for p in parts) if len(v)]
    while views:
        written = os.writev(descriptor, views[:64])
        while written:
            if written < len(views[0]):
                views[0] = views[0][written:]
                break
            written -= len(views.pop(0))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[int, Callable[[int, int], Bytes]]]:
    """The size of a file, and what reads so many bytes of it from an offset on (fewer where it ends)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(offset: int, size: int) -> Bytes:
        if size >= MANY_BYTES:
            return read_at(descriptor, offset, size)
        found = os.pread(descriptor, size, offset)
        while 0 < len(found) < size and (more := os.pread(descriptor, size - len(found), offset + len(found))):
            found += more
        return found

    try:
        yield os.fstat(descriptor).st_size, read
    finally:
        os.close(descriptor)


class Files:
    """How files are written: with or without waiting for the disk."""

    def __init__(self, sync: bool) -> None:
        self.sync = sync

    def prepare(self, path: Path, parts: Iterable[Bytes]) -> Path:
        """A complete, synced neighbour of `path`, ready to be renamed. On failure nothing is left behind."""
        neighbour = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        descriptor = os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, write_at(descriptor, 0, parts))
            self.flush(descriptor)
        except BaseException:
            os.close(descriptor)
            neighbour.unlink(missing_ok=True)
            raise
        os.close(descriptor)
        return neighbour

    def commit(self, neighbour: Path, path: Path) -> None:
        os.replace(neighbour, path)
        self.flush_directory(path.parent)

    def replace(self, path: Path, parts: Iterable[Bytes]) -> None:
        self.commit(self.prepare(path, parts), path)

    def flush(self, descriptor: int) -> None:
        if self.sync:
            os.fdatasync(descriptor)

    def flush_directory(self, path: Path) -> None:
        if self.sync:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def make_directory(self, path: Path) -> Path:
        if not path.is_dir():
            # Parents one by one: `parents=True` would make them by the umask, readable to others.
            self.make_directory(path.parent)
            path.mkdir(mode=0o700, exist_ok=True)
            self.flush_directory(path.parent)
        return path


def read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
