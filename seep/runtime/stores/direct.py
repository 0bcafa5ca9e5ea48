"""Many bytes to and from the disk past the page cache.

What is written here is seldom read again and never soon: checkpoints are dropped, logs are truncated. Through the page
cache every megabyte takes fresh pages first: on a virtual machine a millisecond of processor time and more, twenty
times what the rest costs. So it goes straight from a buffer that is used again and again, in whole blocks. A file
system that cannot do that (tmpfs) gets ordinary writes; so does what is small.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line needs names only, not columns
    from seep.state.ipc import Bytes

BLOCK_BYTES = 4096
"""Of every disk a multiple of its own."""
MANY_BYTES = 256 << 10
_STAGE_BYTES = 2 << 20
_UNABLE = (errno.EINVAL, errno.EOPNOTSUPP)
_of_thread = threading.local()


def whole_blocks(size: int) -> int:
    """
    >>> whole_blocks(0), whole_blocks(1), whole_blocks(4096), whole_blocks(4097)
    (0, 4096, 4096, 8192)
    """
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def write_at(descriptor: int, offset: int, parts: Iterable[Bytes]) -> int:
    """Write the parts one after the other from an offset on, which is a multiple of a block; answers how many bytes
    they are. Of many, zeros up to the next block follow."""
    writer = _Writer(descriptor, offset)
    try:
        for part in parts:
            writer.add(memoryview(part).cast("B"))
        return writer.finish() - offset
    finally:
        writer.plain()


class _Writer:
    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        self._begin = self._offset = offset
        self._stage = memoryview(_stage())
        self._filled = 0
        self._flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        self._able = True

    def add(self, view: memoryview) -> None:
        while len(view):
            size = min(len(view), _STAGE_BYTES - self._filled)
            self._stage[self._filled : self._filled + size] = view[:size]
            self._filled += size
            view = view[size:]
            if self._filled == _STAGE_BYTES:
                self._write(_STAGE_BYTES)
                self._offset += _STAGE_BYTES
                self._filled = 0

    def finish(self) -> int:
        """The offset behind the last byte."""
        end, size = self._offset + self._filled, self._filled
        if end - self._begin >= MANY_BYTES:
            size = whole_blocks(size)
            self._stage[self._filled : size] = bytes(size - self._filled)
        else:
            self._able = False
        self._write(size)
        return end

    def plain(self) -> None:
        """The descriptor is as it was."""
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, self._flags)

    def _write(self, size: int) -> None:
        if self._able:
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_SETFL, self._flags | os.O_DIRECT)
                _write_all(self._descriptor, self._stage[:size], self._offset)
                return
            except OSError as error:
                if error.errno not in _UNABLE:
                    raise
                self._able = False
                self.plain()
        _write_all(self._descriptor, self._stage[:size], self._offset)


def _write_all(descriptor: int, view: memoryview, offset: int) -> None:
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def _stage() -> mmap.mmap:
    """Of this thread; a map begins at a page."""
    found: mmap.mmap | None = getattr(_of_thread, "stage", None)
    if found is None:
        found = _of_thread.stage = mmap.mmap(-1, _STAGE_BYTES)
    return found


def read_at(descriptor: int, offset: int, size: int) -> Bytes:
    """So many bytes from an offset on, or fewer where the file ends."""
    begin = offset // BLOCK_BYTES * BLOCK_BYTES
    room = mmap.mmap(-1, whole_blocks(offset + size - begin))
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        found = _read_all(descriptor, memoryview(room), begin)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        found = _read_all(descriptor, memoryview(room), begin)
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return memoryview(room)[offset - begin : min(found, offset - begin + size)]


def _read_all(descriptor: int, view: memoryview, offset: int) -> int:
    """Bytes read; a read that is no whole number of blocks has met the end of the file."""
    total = 0
    while total < len(view) and (count := os.preadv(descriptor, [view[total:]], offset + total)):
        total += count
        if count % BLOCK_BYTES:
            break
    return total
