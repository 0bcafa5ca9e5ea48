"""The log of what was received: frames in segments, each of which is whole or is not there.

    lock                     held by who appends, for as long as he lives
    name                     of this log: no other has it, so a position in another one is not taken for one in this
    START.log                a segment: frames one after the other; START is the place of its first byte

A frame is a mark, its length, a checksum, its kind and its bytes. It is appended and synced before anybody says that it
was received, and read only once it is synced: so no epoch holds rows that a power cut takes back. What a crash leaves
half written at the end is cut off by the next who appends. Places only grow, also when the beginning is forgotten.

Only one process appends, and the lock says who. A process that hangs may still hold it, and the port it listens on,
too; what it appends when it wakes up is not lost, since whoever reads reads the same files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from seep.errors import DataLoss

LINES, REFUSED = 0, 1
"""Kinds of frames: lines as they came, or (a line each) the text and the reason of what was not taken."""
SEGMENT_BYTES = 16 << 20
KEPT_BYTES = 256 << 20
"""Of what no epoch needs any more, for savepoints that are restored later."""
PIECE_BYTES = 4 << 20
_MAGIC = b"\x8arcv"
_HEADER = struct.Struct(">4sIIB")


class Frame(NamedTuple):
    place: int
    after: int
    kind: int
    data: bytes


def segments(home: Path) -> list[int]:
    """Where each segment starts, in order."""
    return sorted(int(path.stem) for path in home.glob("*.log"))


def _path(home: Path, start: int) -> Path:
    return home / f"{start:020d}.log"


def _frames(data: bytes, place: int) -> list[Frame]:
    """Those that are whole; the first that is not ends it."""
    found: list[Frame] = []
    at = 0
    while at + _HEADER.size <= len(data):
        magic, size, checksum, kind = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + size
        inside = data[at + _HEADER.size : end]
        if magic != _MAGIC or end > len(data) or zlib.crc32(inside, kind) != checksum:
            break
        found.append(Frame(place + at, place + end, kind, inside))
        at = end
    return found


def _some(descriptor: int, start: int, place: int, end: int) -> list[Frame]:
    """Whole frames of a segment from a place on, at least one if there is one before the end."""
    data = os.pread(descriptor, min(PIECE_BYTES, end - place), place - start)
    found = _frames(data, place)
    if not found and len(data) >= _HEADER.size:
        size_bytes = _HEADER.size + _HEADER.unpack_from(data)[1]
        if len(data) < size_bytes <= end - place:
            found = _frames(os.pread(descriptor, size_bytes, place - start), place)
    return found


def _followed(descriptor: int, start: int, place: int, end: int) -> bool:
    """Is there a whole frame behind one that is not? Then that one is damaged: at the end it may be half written."""
    data = os.pread(descriptor, end - place, place - start)
    at = 0
    while (at := data.find(_MAGIC, at + 1)) >= 0:
        if _some(descriptor, start, place + at, end):
            return True
    return False


def name_of(home: Path) -> str:
    """Empty: there is no log yet."""
    try:
        return (home / "name").read_text()
    except FileNotFoundError:
        return ""


def _write_name(home: Path, name: str) -> None:
    aside = home / "name.partial"
    with aside.open("w") as file:
        file.write(name)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(home / "name")
    _sync(home)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LogWriter:
    """Appends. There is one at a time: making another raises BlockingIOError."""

    def __init__(self, who: str, home: Path, begin: int, name: str) -> None:
        """``begin`` and ``name`` are for a log that does not exist yet."""
        self._home = home
        self._lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = self._start = -1
        self._listed = False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            known = segments(home)
            self.fresh = not known
            if self.fresh:
                _write_name(home, name)
            self._open(known[-1] if known else begin)
            self._list()
            self.end = self._whole()
            """All before it is synced."""
            if _followed(self._file, self._start, self.end, self._start + os.fstat(self._file).st_size):
                raise DataLoss(f"{who}: its log in {home} is damaged at {self.end}")
            os.ftruncate(self._file, self.end - self._start)
            os.fsync(self._file)
        except BaseException:
            self.close()
            raise

    def _open(self, start: int) -> None:
        """The new one before the old one is closed: a number that is closed may soon name somebody else's file."""
        opened = os.open(_path(self._home, start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        old, self._file, self._start = self._file, opened, start
        self._listed = False
        if old >= 0:
            os.close(old)

    def _list(self) -> None:
        """A segment that a power cut takes out of the directory keeps nothing."""
        if not self._listed:
            _sync(self._home)
            self._listed = True

    def _whole(self) -> int:
        """Where the last whole frame ends."""
        place, end = self._start, self._start + os.fstat(self._file).st_size
        while frames := _some(self._file, self._start, place, end):
            place = frames[-1].after
        return place

    def append(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """(kind, bytes) of each; durable when it returns."""
        parts = [_HEADER.pack(_MAGIC, len(data), zlib.crc32(data, kind), kind) + data for kind, data in frames]
        at = self.end - self._start
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    written = os.pwrite(self._file, view, at)
                    view, at = view[written:], at + written
            os.fdatasync(self._file)
            self._list()
        except OSError:
            with contextlib.suppress(OSError):  # cut off by the next who appends
                os.ftruncate(self._file, self.end - self._start)
            raise
        self.end = self._start + at
        if at >= SEGMENT_BYTES:
            with contextlib.suppress(OSError):  # these rows are kept all the same; the next append tries again
                self._open(self.end)
                self._list()

    def close(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1


class LogReader:
    """Reads what is synced, whoever appends."""

    def __init__(self, who: str, home: Path) -> None:
        self._who = who
        self._home = home

    def some(self, place: int, synced: int | None) -> list[Frame]:
        """Frames from a place on; none: nothing is there yet. ``synced``: how far the log is, if that is known here;
        without it, what is there is synced first."""
        known = segments(self._home)
        start = max((start for start in known if start <= place), default=None)
        if start is None:
            if known:
                raise DataLoss(
                    f"{self._who}: what was received at {place} is forgotten; its log begins with {known[0]}"
                )
            return []
        descriptor = os.open(_path(self._home, start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = start + os.fstat(descriptor).st_size
            if synced is None and end > place:
                os.fdatasync(descriptor)
            limit = end if synced is None else min(end, synced)
            found = _some(descriptor, start, place, limit)
            damaged = not found and (place > end or (start != known[-1] and limit == end))
            if not found and limit > place:
                # What is synced here ends with a whole frame; what another process appends may not be whole yet.
                damaged = damaged or synced is not None or _followed(descriptor, start, place, end)
        finally:
            os.close(descriptor)
        if damaged:
            raise DataLoss(f"{self._who}: its log in {self._home} is damaged at {place}")
        return found

    def end(self) -> int:
        known = segments(self._home)
        return known[-1] + _path(self._home, known[-1]).stat().st_size if known else 0

    def forget(self, below: int) -> None:
        """Segments that lie far enough before a place; the last one stays."""
        known = segments(self._home)
        for start, after in pairwise(known):
            if after <= below - KEPT_BYTES:
                _path(self._home, start).unlink(missing_ok=True)
