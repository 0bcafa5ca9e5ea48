"""Messages between the processes of a job: over Unix sockets in a private directory, between hosts over TCP.

Every process listens at a path derived from its name, so nobody on its host needs discovery; processes of several hosts
also say where they listen for the others (`hosts.py`). To send, one connects, once for each lane. A connection carries
messages one way, so there is no race of two processes connecting to each other. Plain sockets and not ZeroMQ, because
a closed connection is the failure detector: the kernel closes it the moment a process dies, and here it is seen by the
next `poll` (docs/decisions/0002-transport.md). What crosses a network is sealed (docs/decisions/0015-several-hosts.md).

One thread owns a Transport; only `wake` may be called from others. A message to a peer that is absent, or whose
queue is full, is dropped and counted: the protocol asks again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import selectors
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seep.runtime.handshake import HandshakeError
from seep.runtime.hosts import Whereabouts, network_socket, prepare_network
from seep.runtime.link import Incoming, LinkClosedError, Outgoing
from seep.state.ipc import Bytes

CONTROL = 0
DATA = 1

QUEUE_BYTES_MAXIMUM = 1 << 30
"""Per peer and lane; credits keep far below it."""
HANDSHAKE_SECONDS = 5.0
STRANGERS_MAXIMUM = 256
"""Connections that have not proved the key yet."""
_SOCKET_BUFFER_BYTES = 4 << 20
_ABSENT = (FileNotFoundError, ConnectionRefusedError, BlockingIOError)
"""What a Unix socket says of a peer that is not there, or has no time."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What this process, or its host, has too few of: by and by there may be some again."""


class Transport:
    def __init__(
        self, directory: Path | str, me: str, key: bytes, listens: bool = True, network_address: str = ""
    ) -> None:
        """``listens=False``: a second voice of a process that listens elsewhere; it only sends. `network_address`:
        where other hosts reach this one; none: all processes are on this host."""
        self.me = me
        self._key = key
        self._directory = _private(Path(directory))
        self._selector = selectors.DefaultSelector()
        self._outgoing: dict[tuple[str, int], Outgoing] = {}
        self._incoming: dict[str, set[Incoming]] = {}
        self._strangers: dict[Incoming | Outgoing, float] = {}
        self._lost: dict[str, None] = {}
        self._control: list[tuple[str, list[Any]]] = []
        self._data: list[tuple[str, list[Any]]] = []
        self._counts = {"sent": 0, "received": 0, "dropped": 0, "refused": 0}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._whereabouts = Whereabouts(self._directory, network_address) if network_address else None
        self._listeners = self._listen() if listens else []

    # --- what hosts call ---------------------------------------------------------------------------------------

    def send(self, to: str, parts: Sequence[Bytes], lane: int = CONTROL) -> None:
        link = self._outgoing.get((to, lane)) or self._connect(to, lane)
        if link is None or link.queued_bytes > QUEUE_BYTES_MAXIMUM:
            self._counts["dropped"] += 1
            return
        idle = not link.wants_to_write
        link.push(parts)
        self._counts["sent"] += 1
        # Write at once what the kernel takes; the rest goes when `poll` finds room.
        if link.ready and idle:
            self._drive(link, writing=True)

    def poll(self, timeout_ms: float) -> list[tuple[str, list[Any]]]:
        """What has arrived, control first; waits at most so long for something to happen."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._serve(left) or left == 0.0:
                break
        self._expel_strangers()
        arrived = self._control + self._data
        self._control, self._data = [], []
        self._counts["received"] += len(arrived)
        return arrived

    def lost(self) -> list[str]:
        """Peers with a connection that has closed since the last call."""
        lost, self._lost = list(self._lost), {}
        return lost

    def connected(self, peer: str) -> bool:
        return bool(self._incoming.get(peer)) or any(
            link.ready for (name, _), link in self._outgoing.items() if name == peer
        )

    def wake(self) -> None:
        """End a `poll` that waits. From any thread, also when the transport has just been closed."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"!")

    def statistics(self) -> Mapping[str, int]:
        return self._counts

    def close(self) -> None:
        """Hang up, after giving the kernel what it takes of the queues."""
        for link in list(self._outgoing.values()):
            self._drive(link, writing=True)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Incoming | Outgoing):
                key.data.sock.close()
        self._selector.close()
        if self._listeners:
            # There may be somebody else by now: a controller that took over from us while we were stopped.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._address(self.me)).st_ino == self._inode:
                    os.unlink(self._address(self.me))
            if self._whereabouts is not None:
                self._whereabouts.forget(_file_name(self.me))
        for listener in self._listeners:
            listener.close()
        os.close(self._directory)
        self._wake_read.close()
        self._wake_write.close()

    # --- connections -------------------------------------------------------------------------------------------

    def _address(self, name: str) -> str:
        # By the directory's descriptor: a socket's path may have 107 bytes, a job's directory more.
        return f"/proc/self/fd/{self._directory}/{_file_name(name)}"

    def _listen(self) -> list[socket.socket]:
        listener = _unix_socket()
        # A process killed before left its socket file; names are not used by two live processes.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address(self.me))
        listener.bind(self._address(self.me))
        listener.listen(256)
        self._inode = os.stat(self._address(self.me)).st_ino
        listeners = [listener]
        if self._whereabouts is not None:
            listeners.append(self._whereabouts.listen(_file_name(self.me)))
        for one in listeners:
            self._selector.register(one, selectors.EVENT_READ, one)
        return listeners

    def _connect(self, to: str, lane: int) -> Outgoing | None:
        try:
            place = self._whereabouts.find(_file_name(to)) if self._whereabouts is not None else None
        except LookupError:
            return None
        try:
            sock = network_socket(place[0]) if place else _unix_socket()
        except OSError as error:
            if error.errno in _SCARCE:
                return None
            raise
        _prepare(sock)
        try:
            sock.connect(place or self._address(to))
        except OSError as error:
            # A connection to another host is made while we go on; the way there may be cut.
            if place is None or not isinstance(error, BlockingIOError):
                sock.close()
                if place is not None or isinstance(error, _ABSENT):
                    return None
                raise
        link = Outgoing(sock, self.me, to, lane, self._key, secrets.token_bytes(32), sealed=place is not None)
        self._outgoing[to, lane] = link
        self._strangers[link] = time.monotonic() + HANDSHAKE_SECONDS
        self._selector.register(sock, selectors.EVENT_READ, link)
        self._drive(link, writing=True)
        return self._outgoing.get((to, lane))

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError as error:
                # There are no more, or one has hung up again already.
                if isinstance(error, BlockingIOError | ConnectionAbortedError) or error.errno in _SCARCE:
                    return
                raise
            if len(self._strangers) >= STRANGERS_MAXIMUM:
                # The oldest goes, not the newest: ours are done in milliseconds, so no crowd keeps them out.
                self._end(next(iter(self._strangers)))
            _prepare(sock)
            over_network = sock.family != socket.AF_UNIX
            if over_network:
                prepare_network(sock)
            link = Incoming(sock, self.me, self._key, secrets.token_bytes(32), sealed=over_network)
            self._strangers[link] = time.monotonic() + HANDSHAKE_SECONDS
            self._selector.register(sock, selectors.EVENT_READ, link)

    def _serve(self, timeout_seconds: float) -> bool:
        """Serve what is ready. True when the caller has something to look at."""
        woken = False
        for key, events in self._selector.select(timeout_seconds):
            link = key.data
            if link is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
                woken = True
            elif isinstance(link, socket.socket):
                self._accept(link)
            elif isinstance(link, Incoming):
                self._receive(link)
            else:
                if events & selectors.EVENT_WRITE:
                    self._drive(link, writing=True)
                if events & selectors.EVENT_READ:
                    self._drive(link, writing=False)
        return woken or bool(self._control or self._data or self._lost)

    def _receive(self, link: Incoming) -> None:
        stranger = link.caller is None
        try:
            messages = link.read()
        except (LinkClosedError, HandshakeError, OSError):
            self._end(link)
            return
        if link.caller is None:
            return
        if stranger:
            self._strangers.pop(link, None)
            self._incoming.setdefault(link.caller.name, set()).add(link)
        lane = self._control if link.caller.lane == CONTROL else self._data
        lane.extend((link.caller.name, message) for message in messages)

    def _drive(self, link: Outgoing, writing: bool) -> None:
        if link.sock.fileno() < 0:
            return  # it went a moment ago, with another one to the same peer
        try:
            if writing:
                link.write()
            else:
                link.read()
        except (LinkClosedError, HandshakeError):
            self._end(link)
            return
        if link.ready:
            self._strangers.pop(link, None)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_to_write else 0)
        if self._selector.get_key(link.sock).events != events:
            self._selector.modify(link.sock, events, link)

    def _end(self, link: Incoming | Outgoing) -> None:
        """One connection has closed: so has its process, or it will connect anew. All its connections go."""
        known = link.caller.name if isinstance(link, Incoming) and link.caller else None
        if isinstance(link, Outgoing) and link.ready:
            known = link.peer
        self._drop(link)
        if known is None:
            # To another host: nobody listens there now, or the way is cut.
            self._counts["dropped" if isinstance(link, Outgoing) and link.sealed else "refused"] += 1
            return
        # What a dead peer sent before is read first: its connections end by themselves, each at its end.
        for lane in (CONTROL, DATA):
            if (other := self._outgoing.get((known, lane))) is not None:
                self._drop(other)
        self._lost[known] = None

    def _drop(self, link: Incoming | Outgoing) -> None:
        self._strangers.pop(link, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.sock)
        link.sock.close()
        if isinstance(link, Outgoing):
            if self._outgoing.get((link.peer, link.lane)) is link:
                del self._outgoing[link.peer, link.lane]
        elif link.caller is not None and link in (there := self._incoming.get(link.caller.name, set())):
            there.discard(link)
            if not there:
                del self._incoming[link.caller.name]

    def _expel_strangers(self) -> None:
        if self._strangers:
            now = time.monotonic()
            for link in [s for s, until in self._strangers.items() if until < now]:
                self._end(link)


def _file_name(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def _unix_socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _prepare(sock)
    return sock


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)


def _private(directory: Path) -> int:
    """A descriptor of the directory, made if need be; refused when others could enter it."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise PermissionError(f"{directory} must belong to this user alone (mode 0700)")
    return descriptor
