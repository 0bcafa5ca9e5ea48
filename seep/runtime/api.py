"""The REST face of a running job: loopback only, with a bearer token that only this user can read.

A web page in the user's browser can reach loopback too, so besides the token the Host and Origin of a request must be
loopback. The routes are the command line's verbs; what they do is behind `JobControl`.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictInt

from seep.errors import Misuse, Retry, SeepError
from seep.runtime.home import api_port
from seep.runtime.stores.files import Files, read_or_none

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class JobControl(Protocol):
    """What can be asked of a running job. Answers are JSON-able; a wrong request raises Misuse."""

    def status(self) -> dict[str, Any]: ...

    def explain(self, operator: str | None = None) -> dict[str, Any]: ...

    def targets(self) -> list[dict[str, Any]]: ...

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]: ...

    def rebalance(self, operator: str) -> dict[str, Any]: ...

    def upgrade_to(self, operator: str, code: str) -> dict[str, Any]: ...

    def kill(self, operator: str, index: int) -> dict[str, Any]: ...

    def savepoint(self, name: str) -> dict[str, Any]: ...

    def audit(self) -> dict[str, Any]: ...

    def query_shown(self, sql: str, at: str | None = None) -> dict[str, Any]: ...

    def view(self, operator: str) -> dict[str, Any]: ...

    def stop(self, drain: bool) -> dict[str, Any]: ...


class Body(BaseModel, extra="forbid"):
    """What is misspelt is refused: a dry run would not be one."""


class Scale(Body):
    operator: str
    count: StrictInt
    dry_run: bool = False


class Rebalance(Body):
    operator: str


class Upgrade(Body):
    operator: str
    code: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The name of what was put, sealed, into the job's directory."""


class Kill(Body):
    operator: str
    index: StrictInt


class Savepoint(Body):
    name: str


class State(Body):
    sql: str = Field(min_length=1, max_length=100_000)
    at: str | None = None


class View(Body):
    operator: str


class Stop(Body):
    drain: bool = False


def create_app(control: JobControl, token: str) -> FastAPI:
    app = FastAPI(title="seep", openapi_url=None)

    @app.middleware("http")
    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        origin = request.headers.get("origin")
        if not _is_loopback(f"//{request.headers.get('host', '')}") or (origin and not _is_loopback(origin)):
            return JSONResponse({"error": "only from this machine"}, 403)
        given = request.headers.get("authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return JSONResponse({"error": "a bearer token is needed"}, 401)
        return await go_on(request)

    @app.exception_handler(SeepError)
    async def explain(_: Request, error: SeepError) -> Response:
        status = 400 if isinstance(error, Misuse) else 503 if isinstance(error, Retry) else 500
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(OSError)
    async def tell(_: Request, error: OSError) -> Response:
        return JSONResponse({"error": f"{error}; mend it and try again"}, 503)

    @app.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"error": "; ".join(map(_refused, error.errors()))}, 422)

    @app.exception_handler(400)
    @app.exception_handler(404)
    @app.exception_handler(405)
    async def answer(_: Request, error: Any) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code)

    @app.exception_handler(Exception)
    async def fail(_: Request, error: Exception) -> Response:
        """A defect of ours; without words of its own, who asked takes us for somebody else."""
        said = " ".join(str(error).split())
        return JSONResponse({"error": f"Bug: {type(error).__name__}: {said}"}, 500)

    @app.get("/status")
    def status() -> dict[str, Any]:
        return control.status()

    @app.get("/explain")
    def explanation(operator: str | None = None) -> dict[str, Any]:
        return control.explain(operator)

    @app.get("/targets")
    def targets() -> list[dict[str, Any]]:
        return control.targets()

    @app.post("/scale")
    def scale(body: Scale) -> dict[str, Any]:
        return control.scale(body.operator, body.count, body.dry_run)

    @app.post("/rebalance")
    def rebalance(body: Rebalance) -> dict[str, Any]:
        return control.rebalance(body.operator)

    @app.post("/upgrade")
    def upgrade(body: Upgrade) -> dict[str, Any]:
        return control.upgrade_to(body.operator, body.code)

    @app.post("/kill")
    def kill(body: Kill) -> dict[str, Any]:
        return control.kill(body.operator, body.index)

    @app.post("/savepoint")
    def savepoint(body: Savepoint) -> dict[str, Any]:
        return control.savepoint(body.name)

    @app.get("/audit")
    def audit() -> dict[str, Any]:
        return control.audit()

    @app.post("/state")
    def state(body: State) -> dict[str, Any]:
        return control.query_shown(body.sql, body.at)

    @app.post("/view")
    def view(body: View) -> dict[str, Any]:
        return control.view(body.operator)

    @app.post("/stop")
    def stop(body: Stop) -> dict[str, Any]:
        return control.stop(body.drain)

    return app


_TRUTH = "true or false"
_WANTED = {"int_type": "a whole number", "string_type": "a text", "bool_type": _TRUTH, "bool_parsing": _TRUTH}


def _refused(one: Any) -> str:
    """A wrong part of a request, in our own words: only its values are checked here, their meaning by the job."""
    name, kind = one["loc"][-1], one["type"]
    if kind == "json_invalid" or one["loc"] == ("body",):
        return "the body of the request must be a JSON object"
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} is no part of this request"
    return f"{name}={one.get('input')!r}; give {_WANTED[kind]}" if kind in _WANTED else f"{name}: {one['msg']}"


def _is_loopback(address: str) -> bool:
    try:
        return urlsplit(address).hostname in LOOPBACK
    except ValueError:
        return False


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise Misuse(f"SEEP_API_PORT={port}: {why}; each flow needs a port of its own") from error


def check_port() -> None:
    """Refuse a port that is taken, while nothing of an earlier run is gone yet."""
    _listen(api_port()).close()


class ApiServer:
    """Serves in a thread until closed; writes where (`api`) and the token (`token`) into the job directory."""

    def __init__(self, job_path: Path, control: JobControl) -> None:
        token = secrets.token_urlsafe(32)
        self._socket = _listen(api_port())
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        files = Files(sync=False)
        files.replace(job_path / "token", [token.encode()])
        files.replace(job_path / "api", [self.address.encode()])
        config = uvicorn.Config(create_app(control, token), log_level="warning", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="seep-api", daemon=True
        )
        self._path = job_path
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        # A controller that took over from this one has written its own.
        if read_or_none(self._path / "api") == self.address.encode():
            for name in ("api", "token"):
                (self._path / name).unlink(missing_ok=True)
