"""Who listens: a thread with an event loop, beside the worker's. What comes is appended to the log in groups.

Many senders wait for one sync together: while one group is being written, the next one gathers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from seep.connectors.received.log import LINES, LogWriter

UNREAD_BYTES = 64 << 20
"""Received and not in an epoch yet: with more, nothing is taken."""
CLOSE_SECONDS = 5.0


class Begin(NamedTuple):
    """Where a log that does not exist yet begins, and the name it has if it is known."""

    place: int
    lines: int
    name: str


class Inbox:
    """Takes what is received into the log. Used by one event loop; `read_to` and `end` by any thread."""

    def __init__(self, who: str, home: Path, begin: Begin) -> None:
        self._writer = LogWriter(who, home, begin.place, begin.name or secrets.token_hex(8))
        if self._writer.fresh and begin.lines:
            # A savepoint was restored without its log, and its position is inside a frame: one that is all taken.
            self._writer.append([(LINES, b"\n" * begin.lines)])
        self._waiting: list[tuple[Sequence[tuple[int, bytes]], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.read_to = begin.place
        """The place up to which epochs were cut."""

    @property
    def end(self) -> int:
        return self._writer.end

    @property
    def full(self) -> bool:
        return self.end - self.read_to > UNREAD_BYTES

    async def put(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Returns when they are durable; raises OSError when they are not in the log."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((frames, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            problem: OSError | None = None
            try:
                await asyncio.to_thread(self._writer.append, [frame for frames, _ in taken for frame in frames])
            except OSError as error:
                problem = error
            for _, done in taken:
                if done.done():
                    continue  # its sender is gone
                if problem is None:
                    done.set_result(None)
                else:
                    done.set_exception(OSError(problem.errno, problem.strerror))

    def close(self) -> None:
        self._writer.close()


class Service(Protocol):
    """What is spoken on the connections."""

    async def serve(self, listening: socket.socket, inbox: Inbox, stop: asyncio.Event) -> None:
        """Until told to stop."""


class Listener:
    """A bound port, the log's lock, and the thread that has them. Making one raises OSError while another has them."""

    def __init__(self, who: str, service: Service, place: tuple[str, int], home: Path, begin: Begin) -> None:
        self.inbox = Inbox(who, home, begin)
        try:
            self._socket = bound(*place)
        except OSError:
            self.inbox.close()
            raise
        self._service = service
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="seep-received", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._service.serve(self._socket, self.inbox, self._stop))
        except BaseException as problem:
            self.failure = problem
        finally:
            self._socket.close()
            self.inbox.close()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """No more is taken; what was taken is in the log."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_SECONDS)


def bound(host: str, port: int) -> socket.socket:
    """Raises OSError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def place_problem(host: Any, port: Any) -> str:
    """Why nobody can listen there; empty: somebody can."""
    if not isinstance(host, str) or not host:
        return f"host={host!r}; give the address to listen on, such as '127.0.0.1'"
    if type(port) is not int or not 0 < port < 65_536:
        return f"port={port!r}; give a number from 1 to 65535"
    return ""
