"""Lines that others send through a TCP connection: plain text, or a JSON object each.

There is no answer to a line, so who sends does not know which of the last ones were kept when a connection breaks;
where that matters, `HttpSource` is the one to use. When the flow is behind, nothing is read from the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

from seep.connectors.received.listener import Inbox
from seep.connectors.received.log import LINES, REFUSED
from seep.connectors.received.source import SHOWN_LETTERS, ReceivedSource

LINE_BYTES = 1 << 20
READ_BYTES = 256 << 10
OPEN_CONNECTIONS = 256
PAUSE_SECONDS = 0.05


class SocketSource(ReceivedSource):
    """Listens on a TCP port for lines: text (the column `line`), or with a ``schema`` JSON objects.

    >>> SocketSource(9999).schema.names
    ['line']
    """

    def __init__(self, port: int, schema: Any = None, host: str = "127.0.0.1") -> None:
        super().__init__(f"SocketSource {host}:{port}", LineService(), host, port, schema)


class LineService:
    async def serve(self, listening: socket.socket, inbox: Inbox, stop: asyncio.Event) -> None:
        open_ones: set[asyncio.Task[Any]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(open_ones) < OPEN_CONNECTIONS:
                open_ones.add(task)
                task.add_done_callback(open_ones.discard)
                with contextlib.suppress(OSError):  # it broke off, or the log cannot be written: it is closed then
                    await _receive(reader, inbox)
            writer.close()

        server = await asyncio.start_server(connected, sock=listening, limit=READ_BYTES)
        async with server:
            await stop.wait()
            server.close()
            for task in open_ones:
                task.cancel()
            await asyncio.gather(*open_ones, return_exceptions=True)


async def _receive(reader: asyncio.StreamReader, inbox: Inbox) -> None:
    """Whole lines; the last one needs no line end."""
    rest, passing, over = b"", False, False
    while not over:
        while inbox.full:
            await asyncio.sleep(PAUSE_SECONDS)
        data = await reader.read(READ_BYTES)
        over = not data
        if passing:  # of a line that is too long
            _, found, data = data.partition(b"\n")
            passing = not found
        *lines, rest = (rest + data).split(b"\n")
        if over and rest:
            lines, rest = [*lines, rest], b""
        frames: list[tuple[int, bytes]] = []
        if lines:
            frames.append((LINES, b"".join(line + b"\n" for line in lines)))
        if len(rest) > LINE_BYTES:
            text = rest[:SHOWN_LETTERS].decode(errors="replace")
            frames.append((REFUSED, json.dumps([text, f"a line of more than {LINE_BYTES} bytes"]).encode()))
            rest, passing = b"", True
        if frames:
            await inbox.put(frames)
