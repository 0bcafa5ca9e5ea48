"""Talks to a running job over its REST face; finds it by the flow's name in the jobs' home."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from seep.errors import Misuse, Retry, SeepError
from seep.runtime.home import job_path, jobs_home

TIMEOUT_SECONDS = 60.0
AT_ONCE = frozenset({"status", "explain", "kill", "stop"})
WORK_SECONDS = 3600.0
"""All other routes do work first: a savepoint of gigabytes takes minutes. If the job dies meanwhile, it hangs up."""
LOST = "if its controller is gone: seep run APP --resume"


def homes() -> list[Path]:
    """The directories of the flows that seem to run here: their API's address is written down."""
    return sorted(path.parent for path in jobs_home().glob("*/api"))


def running() -> list[str]:
    """Those flows; of a very long name, its beginning and a digest."""
    return sorted(unquote(home.name) for home in homes())


def ask(flow: str, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The job's answer. Raises Misuse (the request was wrong) or Retry (the job cannot now)."""
    home = job_path(flow)
    if not (home / "api").exists():
        known = ", ".join(running()) or "none"
        raise Misuse(f"flow {flow!r} does not run here (running: {known}); start it with: seep run APP")
    return ask_job(home, method, route, body)


def ask_job(home: Path, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The same of the job in this directory."""
    import httpx  # a third of a second that `seep --help` does without

    flow = unquote(home.name)
    try:
        address, token = (home / "api").read_text(), (home / "token").read_text()
    except FileNotFoundError:
        raise Misuse(f"flow {flow!r} does not run in {home}; start it, or read one of its savepoints") from None
    answered_in = TIMEOUT_SECONDS if route.partition("?")[0] in AT_ONCE else WORK_SECONDS
    try:
        answer = httpx.request(
            method,
            f"{address}/{route}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, read=answered_in),
            trust_env=False,  # it is on this machine: a proxy is not asked, and gets no token
        )
    except httpx.HTTPError as error:
        raise Retry(f"flow {flow!r} does not answer at {address}: {error}; {LOST}") from error
    try:
        found: Any = answer.json()
    except ValueError:
        found = None
    # Of a job that was killed the address is still there, and another server may have got its port meanwhile.
    if answer.status_code == 401 or not isinstance(found, dict):
        what = f"somebody else is there ({answer.status_code} {answer.reason_phrase})"
        raise Retry(f"flow {flow!r} does not answer at {address}: {what}; {LOST}")
    if answer.is_success:
        return found
    problem = found.get("error") or found.get("detail") or answer.reason_phrase
    raise (Misuse if answer.status_code < 500 else Retry)(str(problem))


class Remote:
    """A job over its REST face, with the verbs it has inside for who does not want to wait (`Job.unwaiting`)."""

    def __init__(self, flow: str) -> None:
        self._flow = flow

    def status(self) -> dict[str, Any]:
        return ask(self._flow, "GET", "status")

    def scale(self, operator: str, count: int) -> dict[str, Any]:
        """Asked for. The answer comes when it is done: who pauses workers meanwhile must let go of them in time."""
        wanted = {"operator": operator, "count": count}
        found = ask(self._flow, "POST", "scale", {**wanted, "dry_run": True})  # refuses what cannot be
        threading.Thread(target=self._ask_for, args=("scale", wanted), name="seep-asked", daemon=True).start()
        return found

    def _ask_for(self, route: str, body: dict[str, Any]) -> None:
        with suppress(SeepError):  # what has become of it, whoever looks sees
            ask(self._flow, "POST", route, body)

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        return ask(self._flow, "POST", "kill", {"operator": operator, "index": index})

    def audit(self) -> dict[str, Any]:
        return ask(self._flow, "GET", "audit")

    def savepoint(self, name: str) -> dict[str, Any]:
        return ask(self._flow, "POST", "savepoint", {"name": name})
