"""Rows that others POST, an object a line. Who gets 200 knows that they are in the log."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from seep.connectors.received.listener import Inbox
from seep.connectors.received.log import LINES
from seep.connectors.received.source import ReceivedSource
from seep.errors import Misuse

BODY_BYTES = 8 << 20
OPEN_BYTES = 64 << 20
"""Of all bodies that are being received."""
OPEN_CONNECTIONS = 256
BODY_SECONDS = 30.0
PASS_SECONDS = 2.0
RETRY_SECONDS = 1
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class HttpSource(ReceivedSource):
    """Listens for rows: ``POST`` of JSON objects, one a line. 200 is answered when they are in the job's log.

    ``schema`` is a dataclass or the like. Rows that cannot be read are dead letters. When the flow is behind, 503 and
    ``Retry-After`` are answered.

    >>> HttpSource(8080, schema={"store": str, "amount": float}).schema.names
    ['store', 'amount']
    """

    def __init__(self, port: int, schema: Any, host: str = "127.0.0.1") -> None:
        who = f"HttpSource {host}:{port}"
        if schema is None:
            raise Misuse(f"{who}: give schema=, since rows do not say what they hold")
        super().__init__(who, HttpService(), host, port, schema)


class HttpService:
    async def serve(self, listening: socket.socket, inbox: Inbox, stop: asyncio.Event) -> None:
        config = uvicorn.Config(
            Intake(inbox),
            lifespan="off",
            log_level="error",
            access_log=False,
            limit_concurrency=OPEN_CONNECTIONS,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        server.should_exit = True
        await serving


class Intake:
    """The application, as ASGI has it."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._open_bytes = 0

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, answer = await self._answer(scope, receive)
        headers = [(b"content-type", b"application/json")]
        if status == 503:
            headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
        if status >= 400 and status != 503:
            headers.append((b"connection", b"close"))  # what is left of the body is not read
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode() + b"\n"})

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> tuple[int, dict[str, Any]]:
        headers = dict(scope["headers"])
        refusal = self._refused(scope["method"], headers)
        if refusal is not None:
            await _pass_over(receive)
            return refusal
        size_bytes = int(headers[b"content-length"])
        self._open_bytes += size_bytes
        try:
            return await self._take(receive)
        finally:
            self._open_bytes -= size_bytes

    def _refused(self, method: str, headers: dict[bytes, bytes]) -> tuple[int, dict[str, Any]] | None:
        if method != "POST":
            return 405, {"error": "POST rows, a JSON object a line"}
        if b"origin" in headers:
            return 403, {"error": "not from a web page"}
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or b"transfer-encoding" in headers:  # of both, the length would say nothing
            return 411, {"error": "say Content-Length, and send the body in one piece"}
        if int(length) > BODY_BYTES:
            return 413, {"error": f"send at most {BODY_BYTES} bytes at once"}
        if self._inbox.full or self._open_bytes + int(length) > OPEN_BYTES:
            return 503, {"error": "the flow is behind; try again"}
        return None

    async def _take(self, receive: Receive) -> tuple[int, dict[str, Any]]:
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
        except TimeoutError:
            return 408, {"error": f"the body did not come within {BODY_SECONDS:.0f} s"}
        if body is None:
            return 400, {"error": "the body is not whole"}
        lines = [line for line in body.split(b"\n") if line.strip()]
        if lines:
            try:
                await self._inbox.put([(LINES, b"".join(line + b"\n" for line in lines))])
            except OSError as problem:
                return 503, {"error": f"not kept: {problem.strerror}; try again"}
        return 200, {"rows": len(lines)}


async def _pass_over(receive: Receive) -> None:
    """Read what comes of a body that is refused, a piece at a time, and keep none of it: closing the connection on it
    would take the answer away from who has not read it yet. Not for ever: who sends more is cut off."""
    passed = 0
    try:
        async with asyncio.timeout(PASS_SECONDS):
            while passed < BODY_BYTES:
                message = await receive()
                passed += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


async def _body(receive: Receive) -> bytes | None:
    """None: who sends is gone."""
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        found += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(found)
