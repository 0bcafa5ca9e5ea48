"""Committed rows, sent to a web server: a POST for each epoch, with a key by which it knows one that it has."""

from __future__ import annotations

import copy
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from seep.connectors.contract import AT_MOST_ONCE, Committed, Opening, Publish
from seep.connectors.rowtext import check_json, json_lines
from seep.errors import Misuse
from seep.model.arrow import BUCKET

TIMEOUT_SECONDS = 10.0
TRIES = 3
"""Of one request; then the worker's log has a line, and it begins anew."""
WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 30.0
"""However long the server asks for."""
_LATER = (408, 409, 423, 425, 429)
"""Answers below 500 that another try may change."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"([!-~]([ -~\t]*[!-~])?)?")
_OURS = ("content-length", "transfer-encoding")


class HttpSink:
    """Sends a POST for each epoch that has rows: JSON objects, one a line; of a Table, its changes.

    The header ``Idempotency-Key`` names the epoch: the same key always has the same rows, and a server that leaves out
    what it has seen has each row once. It is sent until the answer is 2xx; in a flow with
    ``guarantee="at-most-once"`` a single time. ``headers`` go with each request.

    >>> HttpSink("https://example.com/rows").kind
    'http'
    """

    kind = "http"

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._who = f"HttpSink {url!r}"
        if problem := _url_problem(url):
            raise Misuse(f"{self._who}: {problem}; give an address, such as http://127.0.0.1:8080/rows")
        self.url = url
        self.headers = _checked_headers(self._who, headers)
        self._run = ""

    def check(self, schema: pa.Schema, table_keys: tuple[str, ...] | None) -> None:
        """Can rows of these columns be written?"""
        check_json(self._who, schema)

    def prepared(self) -> HttpSink:
        """With a name that no other run has: its epochs begin with 1 again."""
        found = copy.copy(self)
        found._run = secrets.token_hex(8)
        return found

    def open(self, opening: Opening) -> Publish:
        writer = f"{self._run}-{quote(opening.name)}-{opening.number}"
        client = httpx.Client(timeout=TIMEOUT_SECONDS, headers=self.headers)

        once = opening.guarantee == AT_MOST_ONCE

        def publish(commits: Sequence[Committed]) -> int:
            failed: ConnectionError | None = None
            for epoch, record, _ in commits:
                if record is not None and record.num_rows:
                    body = b"".join(line + b"\n" for line in json_lines(record.drop_columns([BUCKET])) if line)
                    try:
                        self._send(client, body, f"{writer}-{epoch}", 1 if once else TRIES)
                    except ConnectionError as problem:
                        failed = problem
                        if not once:
                            break
            if failed is not None:
                raise failed
            return commits[-1].epoch

        return publish

    def _send(self, client: httpx.Client, body: bytes, key: str, tries: int) -> None:
        """Until it is taken, or for some tries. Each may have been taken although nobody heard of it: the key tells."""
        problem, wait_seconds = "", 0.0
        for attempt in range(tries):
            time.sleep(wait_seconds)
            wait_seconds = WAIT_SECONDS * 2**attempt
            try:
                with client.stream("POST", self.url, content=body, headers=_headers(key)) as answer:
                    status, after = answer.status_code, answer.headers.get("retry-after", "")
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if 200 <= status < 300:
                return
            if status < 500 and status not in _LATER:
                raise Misuse(f"{self._who}: it answers {status}, and would again; the key was {key}")
            problem = f"it answers {status}"
            if after.isdigit():
                wait_seconds = min(float(after), LONGEST_WAIT_SECONDS)
        raise ConnectionError(f"{self._who}: {problem}")


def _url_problem(url: Any) -> str:
    """Empty: rows can be sent there."""
    try:
        parts = httpx.URL(url)
        found = parts.scheme in ("http", "https") and parts.host
        return "" if found and (parts.port is None or 0 < parts.port < 65_536) else "nothing can be sent there"
    except (TypeError, ValueError, httpx.InvalidURL) as problem:
        return str(problem)


def _checked_headers(who: str, headers: Any) -> dict[str, str]:
    """What no request can carry would be found by a worker, and by the next one again."""
    if not isinstance(headers, Mapping | None):
        raise Misuse(f"{who}: headers={headers!r}; give a dict from names to values")
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise Misuse(f"{who}: {name!r} cannot be the name of a header")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise Misuse(f"{who}: the header {name!r} must be text in one line of ASCII, without spaces at its ends")
    return dict(headers or {})


def _headers(key: str) -> dict[str, Any]:
    return {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
