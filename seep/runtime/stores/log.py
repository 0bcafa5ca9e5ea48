"""An append-only file of enveloped records: (epoch, record), and marks "everything below this epoch is forgotten".

A crash can tear only the last, unanswered append: a bad record with nothing whole behind it is cut off, and what of
that append stands before it stays. A bad record with a whole one behind it is damage, and is reported, never skipped.
Forgetting appends a mark; the file is rewritten only when three quarters of it are dead, so that truncation costs
nothing on the way. The newest record is never forgotten: it says where to go on. The caller holds the partition's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seep.model.ids import FOREVER
from seep.runtime.stores.files import Files, write_all
from seep.state.codec import (
    MAGIC,
    RECORD,
    DamagedError,
    ForeignError,
    decode_value,
    encode_value,
    sealed_bytes,
)

_ROW = 0
_MARK = 1
REWRITE_BYTES = 16 << 20
"""Below this size a file is not worth rewriting."""


@dataclass
class _Index:
    """What is known of the file's first `end` bytes; another process may have added more since."""

    inode: int = 0
    end: int = 0
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    """(epoch, offset, bytes) of what is not forgotten."""


class Log:
    def __init__(self, path: Path, key: bytes, files: Files) -> None:
        self._path = path
        self._key = key
        self._files = files
        self._index = _Index()
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
        data = self._path.read_bytes()
        kept = [memoryview(data)[offset : offset + size] for _, offset, size in self._index.rows]
        self._files.replace(self._path, kept)
        self._index = _Index()

    def _write(self, values: Sequence[tuple[int, int, Any]], sync: bool) -> None:
        data = [encode_value(RECORD, value, self._key) for value in values]
        created = not self._path.exists()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
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
        for value, written in zip(values, data, strict=True):
            self._apply(value, self._index.end, len(written))
        if created and sync:
            self._files.flush_directory(self._path.parent)

    def _catch_up(self) -> None:
        """Index what was added since, by anyone; cut a torn tail."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._index = _Index()
            return
        if found.st_ino != self._index.inode or found.st_size < self._index.end:
            self._index = _Index(inode=found.st_ino)
        if found.st_size == self._index.end:
            return
        with self._path.open("rb") as file:
            file.seek(self._index.end)
            data = file.read()
        start = self._index.end
        for offset, size, value in self._scan(data):
            self._apply(value, start + offset, size)
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

    def _scan(self, data: bytes) -> Iterator[tuple[int, int, Any]]:
        view = memoryview(data)
        at = 0
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

    def _whole_record_after(self, data: bytes, at: int) -> bool:
        view = memoryview(data)
        while (at := data.find(MAGIC, at)) >= 0:
            try:
                decode_value(RECORD, view[at : at + sealed_bytes(view[at:])], self._key)
                return True
            except DamagedError:
                at += 1
        return False
