"""The verbs on running jobs, through the real REST face: output, JSON and exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from seep.cli.client import Remote
from seep.cli.main import main
from seep.cli.output import with_progress
from seep.errors import Misuse
from seep.running.before import answers
from seep.runtime.api import ApiServer
from seep.runtime.home import jobs_home
from seep.runtime.stores.files import escape

STATUS = {
    "flow": "my sales",
    "outcome": "running",
    "workers": ["w1"],
    "operators": {"count": [{"buckets": [0, 4096], "worker": "w1", "epoch": 7}]},
}


class Control:
    def status(self) -> dict[str, Any]:
        return STATUS

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        if operator != "count":
            raise Misuse(f"no operator {operator!r}; there are: count")
        if dry_run:
            old = {"count/0": "0-4095"} if count > 1 else {}
            new = ["0-2047", "2048-4095"] if count > 1 else []
            return {"operator": operator, "count": count, "dry_run": True, "now": 1, "old": old, "new": new}
        return {"operator": operator, "count": count}

    def rebalance(self, operator: str) -> dict[str, Any]:
        return {"operator": operator, "rebalanced": operator == "count", "why": "the load is so"}

    def upgrade_to(self, operator: str, code: str) -> dict[str, Any]:
        return {"operator": operator, "epoch": 7}

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        return {"worker": "w1", "partition": f"{operator}/{index}"}

    def savepoint(self, name: str) -> dict[str, Any]:
        return {"savepoint": name, "epoch": 9}

    def audit(self) -> dict[str, Any]:
        problem = "edge rows->count:0: 9 rows sent, 8 taken; first in epoch 4: 3 sent, 2 taken"
        edges = [{"edge": "rows->count:0", "sent": 9, "taken": 8}, {"edge": "count->out:0", "sent": 2, "taken": None}]
        found = {"epoch": 5, "balanced": False, "problems": [problem], "read": {"rows": 10}, "edges": edges}
        nodes = {"count": {"balanced": True, "in": {"in": 8, "results": 2}, "out": {"out": 2, "pending": 8}}}
        sinks = {"out": {"sent": 2, "committed": 2}}
        return {**found, "sinks": sinks, "nodes": nodes, "elsewhere": {"rows": {"filtered": 1}}}

    def query_shown(self, sql: str, at: str | None = None) -> dict[str, Any]:
        if "nowhere" in sql:
            raise Misuse("sql: no table 'nowhere'; tables are: count")
        rows = [{"key": "a", "n": 5, "note": None}, {"key": "bc", "n": 12, "note": "x" * 100}]
        return {"flow": "my sales", "epoch": 9, "columns": ["key", "n", "note"], "rows": rows if at is None else []}

    def view(self, operator: str) -> dict[str, Any]:
        return {"operator": operator}

    def stop(self, drain: bool) -> dict[str, Any]:
        return {"flow": "my sales", "stopping": "drain" if drain else "stop"}


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    home = tmp_path / "my%20sales"
    home.mkdir()
    server = ApiServer(home, Control())

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seep", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out, found.err

    yield call
    server.close()


def test_ps(run: Run) -> None:
    code, out, _ = run("ps")
    assert code == 0
    assert out.splitlines() == ["my sales  running  workers: 1", "  count/0  buckets 0-4095  epoch 7  on w1"]
    assert json.loads(run("ps", "my sales", "--json")[1]) == STATUS


def test_state(run: Run) -> None:
    code, out, _ = run("state", "my sales", "select * from count")
    wide = "x" * 59 + "…"
    assert (code, out.splitlines()) == (0, ["key   n  note", "a     5", f"bc   12  {wide}", "2 rows at epoch 9"])
    found = json.loads(run("state", "my sales", "select * from count", "--json")[1])
    assert (found["epoch"], found["rows"][0]) == (9, {"key": "a", "n": 5, "note": None})
    assert run("state", "my sales", "select *", "--at", "v1") == (0, "key  n  note\n0 rows at epoch 9\n", "")
    wrong = "seep: sql: no table 'nowhere'; tables are: count\n"
    assert run("state", "my sales", "select * from nowhere") == (2, "", wrong)
    code, _, said = run("state", "yours", "select 1", "--at", "v1")
    assert code == 2
    assert said.startswith("seep: flow 'yours' has never run here")


def test_verbs(run: Run) -> None:
    assert run("scale", "my sales", "count=3") == (0, "count: 3 partitions now\n", "")
    assert run("rebalance", "my sales", "count") == (0, "count: rebalanced, the load is so\n", "")
    assert run("rebalance", "my sales", "even") == (0, "even: not rebalanced, the load is so\n", "")
    assert run("kill", "my sales", "count/0") == (0, "killed worker w1, which ran count/0\n", "")
    assert run("savepoint", "my sales", "v1", "--json") == (0, '{"savepoint": "v1", "epoch": 9}\n', "")
    assert run("stop", "my sales", "--drain") == (0, "my sales stops (drain)\n", "")


def test_a_dry_run_says_what_would_be_replaced(run: Run) -> None:
    assert run("scale", "my sales", "count=2", "--dry-run")[1].splitlines() == [
        "count: 1 -> 2 partitions (nothing was changed); it would replace",
        "  count/0, buckets 0-4095",
        "  by 2 with the buckets 0-2047, 2048-4095",
    ]
    assert run("scale", "my sales", "count=1", "--dry-run")[1] == "count: 1 partitions as it is; nothing would change\n"
    assert json.loads(run("scale", "my sales", "count=2", "--dry-run", "--json")[1])["old"] == {"count/0": "0-4095"}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("scale", "my sales"), "; see: seep scale --help"),
        (("scale", "my sales", "count=²"), "is not OPERATOR=N"),
        (("kill", "my sales", "count/²"), "is not OPERATOR/PARTITION"),
        (("stop", "my sales", "--dryn"), "--dryn"),
        (("run", "app.py", "--workers", "0"), "--workers"),
        (("nonsense",), "No such command 'nonsense'; see: seep --help"),
    ],
)
def test_a_wrong_call_is_one_line(run: Run, call: tuple[str, ...], says: str) -> None:
    code, out, problem = run(*call)
    assert (code, out, len(problem.splitlines())) == (2, "", 1)
    assert problem.startswith("seep: ")
    assert says in problem


def test_exit_codes(run: Run) -> None:
    code, out, _ = run("audit", "my sales")
    assert code == 1
    assert out.splitlines() == [
        "my sales: the books do not balance at epoch 5",
        "  edge rows->count:0: 9 rows sent, 8 taken; first in epoch 4: 3 sent, 2 taken",
        "  source rows: 10 read",
        "  rows->count:0: 9 sent, 8 taken",
        "  count->out:0: 2 sent, not counted on the way",
        "  sink out: 2 committed",
        "  count: 8 in + 2 results = 2 out + 8 pending",
        "  rows: 1 filtered",
    ]
    assert run("scale", "my sales", "count") == (2, "", "seep: 'count' is not OPERATOR=N, such as store-minute=3\n")
    assert run("scale", "my sales", "cuont=3") == (2, "", "seep: no operator 'cuont'; there are: count\n")
    code, _, problem = run("stop", "sales")
    assert code == 2
    assert "running: my sales" in problem


def test_a_job_that_is_gone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my%20sales" / "api").write_text("http://127.0.0.1:9")
    code, _, problem = run("stop", "my sales")
    assert code == 3
    assert "does not answer" in problem
    assert "silent" in run("ps")[1]


def test_work_may_take_longer_than_an_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seep.cli.client.TIMEOUT_SECONDS", 0.5)
    savepoint, over = Control.savepoint, threading.Event()

    def slow(self: Control, *_: object) -> dict[str, Any]:
        over.wait(1.5)
        return savepoint(self, "v1")

    monkeypatch.setattr(Control, "savepoint", slow)
    assert run("savepoint", "my sales", "v1")[0] == 0
    monkeypatch.setattr(Control, "status", slow)
    code, _, problem = run("ps", "my sales")
    assert (code, "does not answer" in problem) == (3, True)
    over.set()


def test_chaos_does_not_wait_until_an_operator_is_scaled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has paused and cut meanwhile would stay so, and what waits for that would never be done."""
    asked, over = threading.Event(), threading.Event()
    scale = Control.scale

    def slow(self: Control, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        if not dry_run:
            asked.set()
            over.wait(60)
        return scale(self, operator, count, dry_run)

    monkeypatch.setattr(Control, "scale", slow)
    remote = Remote("my sales")
    assert remote.scale("count", 3)["count"] == 3
    assert asked.wait(60)
    assert remote.status() == STATUS
    with pytest.raises(Misuse, match="no operator 'cuont'"):
        remote.scale("cuont", 3)
    over.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_chaos_that_is_ended_puts_back_what_it_has_done(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Sockets stayed aside and workers paused, and the flow stood still for ever."""
    (jobs_home() / "my%20sales" / "key").write_bytes(b"k" * 32)
    put_back: list[str] = []

    def act(*_: Any) -> None:
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
        finally:
            put_back.append("all")

    monkeypatch.setattr("seep.running.chaos.Chaos.run", act)
    before = signal.getsignal(number)
    code, out, _ = run("chaos", "my sales", "--plan", "pause 1m every 1s")
    assert (code, out, put_back) == (130, "", ["all"])
    assert signal.getsignal(number) is before


class Stranger(BaseHTTPRequestHandler):
    """Has got the port of a job that was killed."""

    said = (200, b"<html>")

    def do_GET(self) -> None:
        self.send_response(self.said[0])
        self.end_headers()
        self.wfile.write(self.said[1])

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("said", [(200, b"<html>"), (404, b"nothing"), (401, b'{"error": "who are you?"}')])
def test_somebody_else_at_the_address_of_a_job_that_is_gone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: tuple[int, bytes]
) -> None:
    home = tmp_path / "my%20sales"
    assert not answers(tmp_path)
    assert answers(home)
    monkeypatch.setattr(Stranger, "said", said)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        (home / "api").write_text(f"http://127.0.0.1:{stranger.server_port}")
        for call in (("stop", "my sales"), ("explain", "my sales"), ("ps", "my sales")):
            code, _, problem = run(*call)
            assert (code, len(problem.splitlines())) == (3, 1)
            assert f"somebody else is there ({said[0]} " in problem
            assert "seep run APP --resume" in problem
        assert run("ps") == (0, "my sales  silent  workers: 0\n", "")
        assert not answers(home), "it can be resumed"
        stranger.shutdown()


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_a_proxy_of_the_environment_is_not_between(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert json.loads(run("ps", "my sales", "--json")[1]) == STATUS
    assert answers(tmp_path / "my%20sales")


def test_ps_of_flows_with_very_long_names_and_of_those_that_have_just_ended(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my%20sales").rename(tmp_path / escape("販売" * 20))
    (tmp_path / "ended").mkdir()
    (tmp_path / "ended" / "api").touch()  # its token is gone already
    code, out, problem = run("ps")
    assert (code, problem) == (0, "")
    assert out.splitlines()[0] == "my sales  running  workers: 1"
    assert run("state", "販売" * 20, "select * from count", "--at", "v1") == (
        0,
        "key  n  note\n0 rows at epoch 9\n",
        "",
    )


@pytest.mark.parametrize(("given", "home"), [("", ".seep"), (None, ".seep"), ("x", "x")])
def test_an_empty_home_is_none(monkeypatch: pytest.MonkeyPatch, given: str | None, home: str) -> None:
    monkeypatch.delenv("SEEP_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("SEEP_HOME", given)
    assert jobs_home() == Path(home)


def test_progress_that_nobody_watches_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with a chaos plan, or a benchmark, is one line; there was an empty one before it."""
    assert with_progress(lambda tell: tell("half", 0.5)) is None
    assert capsys.readouterr() == ("", "")
