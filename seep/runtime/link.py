"""One connection of the transport, in one direction: messages out of it (`Outgoing`), or into it (`Incoming`).

A message is a fixed prefix with the number and sizes of its parts, then the parts. Sizes are checked before anything
is allocated. Small parts are copied out of one reused buffer, a large part is received straight into its own memory,
where Arrow reads it in place. Between hosts the prefix and each part are a sealed record (`sealing.py`).
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from seep.runtime import handshake
from seep.runtime.sealing import TAG_BYTES, BrokenSealError, Seal
from seep.state.ipc import Bytes

PARTS_MAXIMUM = 4
MESSAGE_BYTES_MAXIMUM = 1 << 30
_PREFIX = struct.Struct(f"<I4x{PARTS_MAXIMUM}Q")
_BUFFER_BYTES = 256 << 10
_READ_BYTES_MAXIMUM = 16 << 20
"""Read from one connection before the others get their turn."""


class LinkClosedError(Exception):
    """The connection has ended, or the other side broke the rules (`args` says how)."""


def _nothing_now(error: OSError) -> bool:
    return isinstance(error, BlockingIOError | InterruptedError)


class Outgoing:
    """The connector's side: proves the key, then sends what is queued."""

    def __init__(
        self, sock: socket.socket, me: str, peer: str, lane: int, key: bytes, nonce: bytes, sealed: bool = False
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.lane = lane
        self.sealed = sealed
        self.ready = False
        self.queued_bytes = 0
        self._key = key
        self._said = handshake.hello(me, lane, nonce)
        self._answer = b""
        self._seal: Seal | None = None
        self._views: deque[memoryview] = deque([memoryview(self._said)])
        self._waiting: deque[Sequence[Bytes]] = deque()

    def push(self, parts: Sequence[Bytes]) -> None:
        size_bytes = sum(memoryview(p).nbytes for p in parts)
        if not 0 < len(parts) <= PARTS_MAXIMUM or size_bytes > MESSAGE_BYTES_MAXIMUM:
            raise ValueError(f"a message of {len(parts)} parts and {size_bytes} bytes")
        if self.ready:
            self._queue(parts)
        else:
            self._waiting.append(parts)
            self.queued_bytes += size_bytes

    def _queue(self, parts: Sequence[Bytes]) -> None:
        sizes = [memoryview(p).nbytes for p in parts]
        records: list[Bytes] = [_PREFIX.pack(len(parts), *sizes, *[0] * (PARTS_MAXIMUM - len(parts))), *parts]
        if self._seal is not None:
            records = [self._seal.seal(record) for record in records]
        views = [memoryview(record).cast("B") for record in records if memoryview(record).nbytes]
        self._views.extend(views)
        self.queued_bytes += sum(map(len, views))

    @property
    def wants_to_write(self) -> bool:
        return bool(self._views)

    def write(self) -> None:
        views = self._views
        while views:
            try:
                sent = self.sock.sendmsg([views[i] for i in range(min(len(views), 64))])
            except OSError as error:
                if _nothing_now(error):
                    return
                raise LinkClosedError(str(error)) from error
            if self.ready:
                self.queued_bytes -= sent
            while sent:
                if sent < len(views[0]):
                    views[0] = views[0][sent:]
                    break
                sent -= len(views.popleft())

    def read(self) -> None:
        """The listener speaks only once, in the handshake; after that, a readable connection is a closed one."""
        try:
            data = self.sock.recv(handshake.ANSWER_BYTES - len(self._answer) or 1)
        except OSError as error:
            if _nothing_now(error):
                return
            raise LinkClosedError(str(error)) from error
        if not data or self.ready:
            raise LinkClosedError("closed" if not data else "spoke out of turn")
        self._answer += data
        if len(self._answer) == handshake.ANSWER_BYTES:
            proof = handshake.check_answer(self._key, self.peer, self._said, self._answer)
            if self.sealed:
                nonce = self._answer[: handshake.NONCE_BYTES]
                self._seal = Seal(handshake.session_key(self._key, self.peer, self._said, nonce))
            # The proof is counted with the messages from here on, as `write` cannot tell them apart.
            self.queued_bytes = len(proof)
            self._views.append(memoryview(proof))
            while self._waiting:
                self._queue(self._waiting.popleft())
            self.ready = True
            self.write()


class Incoming:
    """The listener's side: demands the proof, then yields whole messages."""

    def __init__(self, sock: socket.socket, me: str, key: bytes, nonce: bytes, sealed: bool = False) -> None:
        self.sock = sock
        self.sealed = sealed
        self.caller: handshake.Caller | None = None
        self._me = me
        self._key = key
        self._nonce = nonce
        self._said = b""
        self._handshake = b""
        self._seal: Seal | None = None
        self._more_bytes = TAG_BYTES if sealed else 0
        """A record is so much longer than what it holds."""
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._sizes: list[int] = []
        self._parts: list[Any] = []
        self._large: memoryview | None = None
        """What is still empty of the part being received in place."""

    def read(self) -> list[list[Any]]:
        """Messages that are now whole."""
        if self.caller is None:
            self._shake()
            return []
        messages: list[list[Any]] = []
        read_bytes = 0
        while read_bytes < _READ_BYTES_MAXIMUM:
            target = self._large if self._large is not None else self._room()
            try:
                count = self.sock.recv_into(target)
            except OSError as error:
                if _nothing_now(error):
                    break
                raise LinkClosedError(str(error)) from error
            if not count:
                if messages:
                    break  # the end is seen again at the next read; what came before it counts
                raise LinkClosedError("closed")
            read_bytes += count
            full = count == len(target)
            if self._large is not None:
                self._large = self._large[count:] if count < len(self._large) else None
                if self._large is None:
                    self._parts[-1] = self._opened(self._parts[-1])
            else:
                self._end += count
            if self._large is None:
                self._parse(messages)
            if not full and self._large is None:
                break
        return messages

    def _shake(self) -> None:
        wanted = handshake.PROOF_BYTES if self._said else handshake.HELLO_BYTES
        try:
            data = self.sock.recv(wanted - len(self._handshake))
        except OSError as error:
            if _nothing_now(error):
                return
            raise LinkClosedError(str(error)) from error
        if not data:
            raise LinkClosedError("closed")
        self._handshake += data
        if len(self._handshake) < wanted:
            return
        if not self._said:
            handshake.read_hello(self._handshake)
            self._said, self._handshake = self._handshake, b""
            # 64 bytes always fit into a fresh socket's buffer: a short write is a peer to be rid of.
            if self.sock.send(handshake.answer(self._key, self._me, self._said, self._nonce)) != handshake.ANSWER_BYTES:
                raise LinkClosedError("the answer did not fit")
            return
        handshake.check_proof(self._key, self._me, self._said, self._nonce, self._handshake)
        if self.sealed:
            self._seal = Seal(handshake.session_key(self._key, self._me, self._said, self._nonce))
        self.caller = handshake.read_hello(self._said)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)

    def _room(self) -> memoryview:
        """Free space behind what is buffered; a rest at the end moves to the front."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start > _BUFFER_BYTES // 2:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._view[self._end :]

    def _parse(self, messages: list[list[Any]]) -> None:
        while True:
            if not self._sizes:
                if self._end - self._start < _PREFIX.size + self._more_bytes:
                    return
                self._sizes = self._read_prefix()
            while len(self._parts) < len(self._sizes):
                size = self._sizes[len(self._parts)] + self._more_bytes
                there = self._end - self._start
                if size <= there:
                    self._parts.append(self._opened(self._take(size)))
                elif size > _BUFFER_BYTES // 4:
                    self._begin_large(size, there)
                    return
                else:
                    return
            messages.append(self._parts)
            self._sizes, self._parts = [], []

    def _take(self, size: int) -> bytes:
        """So much of what is buffered."""
        taken = bytes(self._view[self._start : self._start + size])
        self._start += size
        return taken

    def _opened(self, record: Any) -> Any:
        if self._seal is None:
            return record
        try:
            return self._seal.open(record)
        except BrokenSealError as error:
            raise LinkClosedError(str(error)) from error

    def _read_prefix(self) -> list[int]:
        count, *sizes = _PREFIX.unpack(self._opened(self._take(_PREFIX.size + self._more_bytes)))
        if not 0 < count <= PARTS_MAXIMUM or sum(sizes[:count]) > MESSAGE_BYTES_MAXIMUM:
            raise LinkClosedError(f"announced {count} parts of {sizes} bytes")
        return sizes[:count]

    def _begin_large(self, size: int, there: int) -> None:
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer).cast("B")
        view[:there] = self._view[self._start : self._end]
        self._start = self._end = 0
        self._parts.append(buffer)
        self._large = view[there:]
