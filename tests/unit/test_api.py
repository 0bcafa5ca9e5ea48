"""The REST face: only loopback, only with the token, errors in one line."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from seep.errors import Misuse, Retry
from seep.runtime.api import ApiServer


class Control:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def status(self) -> dict[str, Any]:
        return {"flow": "sales"}

    def explain(self, operator: str | None = None) -> dict[str, Any]:
        return {"flow": "sales", "operator": operator}

    def targets(self) -> list[dict[str, Any]]:
        return [{"targets": ["127.0.0.1:9"], "labels": {"flow": "sales"}}]

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        if operator != "count":
            raise Misuse(f"no operator {operator!r}; there is: count")
        self.asked.append((operator, count))
        return {"operator": operator, "count": count}

    def rebalance(self, operator: str) -> dict[str, Any]:
        return {"operator": operator, "rebalanced": True}

    def upgrade_to(self, operator: str, code: str) -> dict[str, Any]:
        return {"operator": operator, "code": code}

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        return {"worker": "w1"}

    def savepoint(self, name: str) -> dict[str, Any]:
        raise Retry("a Replace is under way")

    def audit(self) -> dict[str, Any]:
        return {"balanced": True}

    def query_shown(self, sql: str, at: str | None = None) -> dict[str, Any]:
        return {"sql": sql, "at": at}

    def view(self, operator: str) -> dict[str, Any]:
        return {"operator": operator}

    def stop(self, drain: bool) -> dict[str, Any]:
        return {"drain": drain}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path, Control())
    yield server
    server.close()
    assert not (tmp_path / "token").exists()


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> Iterator[httpx.Client]:
    token = (tmp_path / "token").read_text()
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert (tmp_path / "api").read_text() == server.address
    with httpx.Client(base_url=server.address, headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def test_every_route(client: httpx.Client) -> None:
    assert client.get("/status").json() == {"flow": "sales"}
    assert client.get("/explain", params={"operator": "count"}).json() == {"flow": "sales", "operator": "count"}
    assert client.get("/targets").json() == [{"targets": ["127.0.0.1:9"], "labels": {"flow": "sales"}}]
    assert client.post("/scale", json={"operator": "count", "count": 3}).json() == {"operator": "count", "count": 3}
    assert client.post("/rebalance", json={"operator": "count"}).json() == {"operator": "count", "rebalanced": True}
    upgrade = {"operator": "count", "code": "0a" * 32}
    assert client.post("/upgrade", json=upgrade).json() == upgrade
    assert client.post("/upgrade", json={"operator": "count", "code": "../key"}).status_code == 422
    assert client.post("/kill", json={"operator": "count", "index": 0}).json() == {"worker": "w1"}
    assert client.get("/audit").json() == {"balanced": True}
    assert client.post("/state", json={"sql": "select 1"}).json() == {"sql": "select 1", "at": None}
    assert client.post("/state", json={"sql": "select 1", "at": "v1"}).json() == {"sql": "select 1", "at": "v1"}
    assert client.post("/view", json={"operator": "count"}).json() == {"operator": "count"}
    assert client.post("/stop", json={"drain": True}).json() == {"drain": True}


def test_errors_say_what_to_do(client: httpx.Client) -> None:
    answer = client.post("/scale", json={"operator": "cuont", "count": 3})
    assert (answer.status_code, answer.json()) == (400, {"error": "no operator 'cuont'; there is: count"})
    assert client.post("/savepoint", json={"name": "v1"}).status_code == 503
    for body, said in (
        ({"operator": "count", "count": 2.5}, "count=2.5; give a whole number"),
        ({"operator": "count", "count": "3"}, "count='3'; give a whole number"),
        ({"operator": 7, "count": 3}, "operator=7; give a text"),
        ({"operator": "count"}, "count is missing"),
        ({"operator": "count", "count": 3, "dry_run": "perhaps"}, "dry_run='perhaps'; give true or false"),
        ({"operator": "count", "count": 3, "dry-run": True}, "dry-run is no part of this request"),
        ([], "the body of the request must be a JSON object"),
    ):
        answer = client.post("/scale", json=body)
        assert (answer.status_code, answer.json()) == (422, {"error": said})
    for content in (b"", b"{operator", b"null"):
        answer = client.post("/scale", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()) == (422, {"error": said})
    assert client.get("/scale").json() == {"error": "Method Not Allowed"}
    assert client.get("/scales").json() == {"error": "Not Found"}
    assert "error" in client.post("/scale", content=b"\xff", headers={"content-type": "application/json"}).json()


def test_a_defect_is_told_as_one(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line took an answer without words for that of somebody else at this address."""

    def broken(self: Control) -> dict[str, Any]:
        raise ValueError("two\nlines")

    monkeypatch.setattr(Control, "audit", broken)
    answer = client.get("/audit")
    assert (answer.status_code, answer.json()) == (500, {"error": "Bug: ValueError: two lines"})


def test_strangers_are_refused(client: httpx.Client, server: ApiServer) -> None:
    assert httpx.get(f"{server.address}/status").status_code == 401
    assert httpx.get(f"{server.address}/status", headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.get("/status", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/status", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/status", headers={"Origin": "http://127.0.0.1:9999"}).status_code == 200


def test_a_port_that_is_known_beforehand(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = server.address.rpartition(":")[2]
    for given, said in ((taken, "Address already in use; each flow needs"), ("many", "'many' is no port")):
        monkeypatch.setenv("SEEP_API_PORT", given)
        with pytest.raises(Misuse, match=f"SEEP_API_PORT=.*{said}"):
            ApiServer(tmp_path / "other", Control())


def test_a_full_disk_is_told_in_one_line(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Control, name: str) -> dict[str, Any]:
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr(Control, "savepoint", full)
    answer = client.post("/savepoint", json={"name": "v1"})
    assert answer.status_code == 503
    assert answer.json() == {"error": "[Errno 28] No space left on device: 'v1'; mend it and try again"}


def test_who_took_over_is_still_found_when_the_one_before_ends(tmp_path: Path) -> None:
    before, after = ApiServer(tmp_path, Control()), ApiServer(tmp_path, Control())
    before.close()
    assert (tmp_path / "api").read_text() == after.address
    after.close()
    assert not (tmp_path / "api").exists()
