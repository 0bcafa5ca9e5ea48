"""An append-only file of enveloped records: (epoch, record), and marks "everything below this epoch is forgotten".

A crash can tear only the last, unanswered append: a bad record with nothing whole behind it is cut off, and what of
that append stands before it stays. A bad record with a whole one behind it is damage, and is reported, never skipped.
Forgetting appends a mark; the file is rewritten only when three quarters of it are dead, so that truncation costs
nothing on the way. The newest record is never forgotten: it says where to go on. The caller holds the partition's lock.

Many bytes are written past the page cache, in whole blocks (`direct`): zeros up to the next block, before such an
append or behind it, are no records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from seep.model.ids import FOREVER
from seep.runtime.stores.direct import MANY_BYTES, whole_blocks, write_at
from seep.runtime.stores.files import Files, opened, write_all
from seep.state.codec import (
    MAGIC,
    RECORD,
    DamagedError,
    ForeignError,
    decode_value,
    encode_parts,
    sealed_bytes,
)

_ROW = 0
_MARK = 1
MAC_BYTES = 32
REWRITE_BYTES = 16 << 20
"""Below this size a file is not worth rewriting."""


@dataclass
class _Index:
    """What is known of the file's first `end` bytes; another process may have added more since."""

    inode: int = 0
    end: int = 0
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    """(epoch, offset, bytes) of what is not forgotten."""
    last: tuple[int, bytes] = (0, b"")
    """Where the last record ends, and its MAC: a file that was rewritten twice meanwhile may have the same inode."""


class Log:
    def __init__(self, path: Path, key: bytes, files: Files) -> None:
        self._path = path
        self._key = key
        self._files = files
        self._index = _Index()
        self._named = False
        """Are its names on the disk? Whoever made them may have been killed before."""
        self.torn_tails = 0

    def last_epoch(self) -> int | None:
        self._catch_up()
        return self._index.rows[-1][0] if self._index.rows else None

    def append(self, records: Iterable[tuple[int, Any]]) -> None:
        """In one write, for which the disk is waited for once."""
        self._catch_up()
        self._write([(_ROW, epoch, record) for epoch, record in records], sync=True)

    def read(self) -> list[tuple[int, Any]]:
        self._catch_up()
        if not self._index.rows:
            return []
        data = self._path.read_bytes()
        answer = []
        for epoch, offset, size in self._index.rows:
            answer.append((epoch, decode_value(RECORD, data[offset : offset + size], self._key)[2]))
        return answer

    def truncate(self, below: int) -> None:
        self._catch_up()
        index = self._index
        if not index.rows:
            return
        over = below >= FOREVER
        below = min(below, index.rows[-1][0])
        if index.rows[0][0] < below:
            # A lost mark only means that more is kept, so nobody waits for the disk.
            self._write([(_MARK, below, None)], sync=False)
        kept_bytes = sum(size for _, _, size in index.rows)
        # Of a log that nobody will add to, only the last record stays.
        if (over and kept_bytes < index.end) or (index.end > REWRITE_BYTES and kept_bytes < index.end // 4):
            self._rewrite()

    def _rewrite(self) -> None:
        with opened(self._path) as (_, read):
            self._files.replace(self._path, (read(offset, size) for _, offset, size in self._index.rows))
        with self._path.open("rb") as file:
            index = _Index(inode=os.fstat(file.fileno()).st_ino)
            for epoch, _, size in self._index.rows:
                index.rows.append((epoch, index.end, size))
                index.end += size
            index.last = index.end, _mac_before(file, index.end)
        self._index = index

    def _write(self, values: Sequence[tuple[int, int, Any]], sync: bool) -> None:
        records = [encode_parts(RECORD, value, self._key) for value in values]
        sizes, data = [sum(map(len, parts)) for parts in records], list(chain(*records))
        many = sum(sizes) >= MANY_BYTES
        offset = whole_blocks(self._index.end) if many else self._index.end
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                if many:
                    write_at(descriptor, offset, data)
                else:
                    os.lseek(descriptor, offset, os.SEEK_SET)
                    write_all(descriptor, data)
                if sync:
                    self._files.flush(descriptor)
            except OSError:
                # What was half written must not stand before the next record.
                os.ftruncate(descriptor, self._index.end)
                raise
            self._index.inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        for value, size in zip(values, sizes, strict=True):
            self._apply(value, offset, size)
            offset += size
        self._index.last = offset, bytes(data[-1][-MAC_BYTES:])
        if many:
            self._index.end = whole_blocks(offset)
        if sync and not self._named:
            for folder in (self._path.parent, self._path.parent.parent):
                self._files.flush_directory(folder)
            self._named = True

    def _catch_up(self) -> None:
        """Index what was added since, by anyone; cut a torn tail."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._index = _Index()
            return
        with self._path.open("rb") as file:
            end, mac = self._index.last
            known = found.st_ino == self._index.inode and found.st_size >= self._index.end
            if not known or _mac_before(file, end) != mac:
                self._index = _Index(inode=found.st_ino)
            if found.st_size == self._index.end:
                return
            file.seek(self._index.end)
            data = file.read()
        start = self._index.end
        for offset, size, value in self._scan(data, start):
            self._apply(value, start + offset, size)
            self._index.last = start + offset + size, data[offset + size - MAC_BYTES : offset + size]
        self._index.end += _padding(memoryview(data)[self._index.end - start :], self._index.end)
        if self._index.end < start + len(data):
            self.torn_tails += 1
            os.truncate(self._path, self._index.end)

    def _apply(self, value: Any, offset: int, size: int) -> None:
        kind, epoch, _ = value
        index = self._index
        if kind == _ROW:
            index.rows.append((epoch, offset, size))
        else:
            index.rows = [r for r in index.rows if r[0] >= epoch]
        index.end = offset + size

    def _scan(self, data: bytes, start: int) -> Iterator[tuple[int, int, Any]]:
        """(place, size, value) of each record; the data begins so far into the file."""
        view = memoryview(data)
        at = _padding(view, start)
        while at < len(view):
            try:
                size = sealed_bytes(view[at:])
                value = decode_value(RECORD, view[at : at + size], self._key)
            except DamagedError as error:
                if isinstance(error, ForeignError) and self._index.end == 0:
                    raise
                if self._whole_record_after(data, at + 1):
                    raise DamagedError(f"{self._path.name}: a record at byte {at} is damaged: {error}") from error
                return
            yield at, size, value
            at += size
            at += _padding(view[at:], start + at)

    def _whole_record_after(self, data: bytes, at: int) -> bool:
        view = memoryview(data)
        while (at := data.find(MAGIC, at)) >= 0:
            try:
                decode_value(RECORD, view[at : at + sealed_bytes(view[at:])], self._key)
                return True
            except DamagedError:
                at += 1
        return False


def _padding(view: memoryview, offset: int) -> int:
    """How many bytes of padding begin here, which is so far into the file: zeros up to the next block, or nothing."""
    size = whole_blocks(offset) - offset
    return size if size and view[:size] == bytes(size) else 0


def _mac_before(file: BinaryIO, end: int) -> bytes:
    """Of the record that ends there."""
    file.seek(max(0, end - MAC_BYTES))
    return file.read(min(end, MAC_BYTES))


class Tail:
    """What others append to a log, for an onlooker: without their lock, and nothing is cut.

    It gives every record that stands in the file when it looks, also those that are forgotten by then. What was
    rewritten between two looks, and forgotten, it misses; whoever reads can tell by what the records say.
    """

    def __init__(self, path: Path, key: bytes, place: tuple[int, int] | None = None) -> None:
        self._path = path
        self._key = key
        self._inode, self._end = place or (0, 0)
        self._last: tuple[int, bytes] = (0, b"")
        """As in the index of a log, of what was read here."""

    @property
    def place(self) -> tuple[int, int]:
        return self._inode, self._end

    def more(self) -> list[tuple[int, Any]]:
        """Records since the last call; after a rewrite some of them once more."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            found = os.fstat(file.fileno())
            other = found.st_ino != self._inode or found.st_size < self._end
            if other or _mac_before(file, self._last[0]) != self._last[1]:
                self._inode, self._end = found.st_ino, 0
            file.seek(self._end)
            view = memoryview(file.read())
        at, answer = 0, []
        while at < len(view):
            place = at + _padding(view[at:], self._end + at)
            try:
                size = sealed_bytes(view[place:])
                kind, epoch, record = decode_value(RECORD, view[place : place + size], self._key)
            except DamagedError:
                break  # it is being written; what is damaged for good, its owner will find
            if kind == _ROW:
                answer.append((epoch, record))
            at = place + size
            self._last = self._end + at, bytes(view[at - MAC_BYTES : at])
        self._end += at
        return answer
