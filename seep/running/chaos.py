"""Chaos on a running job, by a plan and a seed: workers killed and paused, connections cut, operators scaled.

A plan is what people write: ``kill every 5s; pause 2s every 20s; cut 1s every 15s; scale random``. Every deed is aimed
at real processes, whoever gave them their slot: SIGKILL, SIGSTOP, a proxy between sockets. Meanwhile it is seen whether
the sinks go on. The verdict is that of a witness: each row of each sink beside what the same input gives in one piece
(`witness.py`); and of the books: was every row that was put on an edge taken from it once?
"""

from __future__ import annotations

import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from seep.backends.process import Process
from seep.errors import Misuse, Retry, SeepError
from seep.running.cuts import ASIDE, Proxy
from seep.running.deeds import CUT, KILL, PAUSE, SCALE, Deed, deeds
from seep.running.savepoint import Savepoint
from seep.running.witness import Witness
from seep.runtime.job import JobDirectory

LOOK_SECONDS = 0.01
CALM_SECONDS = 60.0
"""So long a job may take to be itself again."""


class Gone(Exception):
    """It does not run any more, or not as it should: that is a verdict, too."""


Tell = Callable[[str, float], None]
"""(what is going on, share of the work that is done)"""


def _quiet(what: str, share: float) -> None:
    """Nobody wants to know."""


class Target(Protocol):
    """The job, from inside or over its REST face."""

    def status(self) -> dict[str, Any]: ...

    def scale(self, operator: str, count: int) -> dict[str, Any]: ...

    def kill(self, operator: str, index: int) -> dict[str, Any]: ...

    def audit(self) -> dict[str, Any]: ...

    def savepoint(self, name: str) -> dict[str, Any]: ...


@dataclass
class Verdict:
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    wrong: int = 0
    """Rows that nobody expected."""
    compared: int = 0
    """Rows that were expected, of all sinks."""
    done: dict[str, int] = field(default_factory=dict)
    """Deeds by kind."""
    recovery_ms: list[float] = field(default_factory=list)
    """After each kill, until every sink had committed an epoch later than any seen before it."""
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.wrong or self.problems)

    def as_dict(self) -> dict[str, Any]:
        times = sorted(self.recovery_ms)
        spread = {
            name: round(times[min(len(times) - 1, int(share * len(times)))], 1)
            for name, share in _SHARES.items()
            if times  # nobody was killed, or the flow ended first
        }
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "wrong": self.wrong,
            "compared": self.compared,
            "done": dict(self.done),
            "recovery_ms": spread,
            "problems": list(self.problems),
            "verdict": "good" if self.good else "bad",
        }


_SHARES = {"p50": 0.5, "p90": 0.9, "max": 1.0}


def unshown(verdict: Verdict) -> list[str]:
    """Why it shows nothing, though nothing was wrong."""
    found = []
    if not any(verdict.done.values()):
        found.append("nothing of the plan was done; give it more time, or a flow with something to kill or scale")
    if not verdict.compared:
        found.append("no row was to come out meanwhile, so nothing was compared; let the flow have input")
    return found


class Chaos:
    def __init__(self, job: Target, path: Path, seed: int = 42) -> None:
        self.job = job
        self.directory = JobDirectory(path)
        self.random = Random(f"victims {seed}")
        self.verdict = Verdict()
        self._proxies: dict[str, Proxy] = {}
        self._committed: dict[str, int] = {}
        self._waiting: list[tuple[float, int]] = []
        """(when, the highest epoch seen) of kills that have not been recovered from."""
        self._later: list[tuple[float, Callable[[], None]]] = []

    def run(self, plan: str, seconds: float, seed: int = 42, tell: Tell = _quiet) -> Verdict:
        todo = deeds(plan, seconds, seed)
        tell("a savepoint", 0.0)
        witness = Witness(self.directory)
        try:
            saved = Savepoint(Path(self.job.savepoint(f"chaos-{secrets.token_hex(4)}")["path"]))
            witness.begin(saved)
            shutil.rmtree(saved.path)
            self._act(todo, seconds, tell)
            tell("it comes to rest", 0.9)
            self._settle()
            upto = self._audit()
        except Gone as gone:
            self.verdict.problems.append(str(gone))
            return self.verdict
        finally:
            witness.close()
        tell("comparing with the same input in one piece", 0.95)
        self._hear(witness, upto)
        self.verdict.problems += unshown(self.verdict)
        return self.verdict

    def _act(self, todo: list[Deed], seconds: float, tell: Tell) -> None:
        began = time.monotonic()
        try:
            while todo or time.monotonic() - began < seconds:
                if todo and time.monotonic() - began >= todo[0].at:
                    tell(todo[0].kind, 0.9 * todo[0].at / seconds)
                    self._do(todo.pop(0))
                self._look(any(deed.kind == CUT for deed in todo))
                time.sleep(LOOK_SECONDS)
        finally:
            for _, undo in self._later:
                undo()
            for proxy in self._proxies.values():
                proxy.close()

    # --- deeds ---------------------------------------------------------------------------------------------------

    def _do(self, deed: Deed) -> None:
        self.verdict.done[deed.kind] = self.verdict.done.get(deed.kind, 0) + 1
        status = self._status()
        places = [(name, i) for name, parts in status["operators"].items() for i in range(len(parts))]
        name, index = self.random.choice(places)
        if deed.kind == KILL:
            self._kill(name, index, _highest(status))
        elif deed.kind == SCALE:
            self._scale(status)
        elif deed.kind == PAUSE:
            self._pause(status["operators"][name][index]["worker"], deed.lasts)
        else:
            self._cut(deed.lasts)

    def _kill(self, operator: str, index: int, highest: int) -> None:
        began = time.monotonic()
        try:
            self.job.kill(operator, index)
        except (Misuse, Retry):
            self.verdict.done[KILL] -= 1  # it was merged away since we looked, or nobody runs it at the moment
        else:
            self._waiting.append((began, highest))

    def _scale(self, status: dict[str, Any]) -> None:
        names = [name for name, kind in status["kinds"].items() if kind == "operator"]
        if not names:
            self.verdict.done[SCALE] -= 1  # sources and sinks alone
            return
        name = self.random.choice(names)
        now = len(status["operators"][name])
        count = self.random.choice([n for n in (1, 2, 3, 4) if n != now])
        try:
            self.job.scale(name, count)
        except (Misuse, Retry):
            self.verdict.done[SCALE] -= 1  # beyond its bounds, or not now

    def _pause(self, worker: str, lasts: float) -> None:
        card = self.directory.registered().get(worker)
        if card is None:
            self.verdict.done[PAUSE] -= 1  # it has just gone
            return
        process = Process.of(card)
        if not process.alive():
            self.verdict.done[PAUSE] -= 1  # gone, or on another host
            return
        process.signal(signal.SIGSTOP)
        self._later.append((time.monotonic() + lasts, lambda: process.signal(signal.SIGCONT)))

    def _cut(self, lasts: float) -> None:
        proxies = [proxy for proxy in self._proxies.values() if proxy.connections]
        if not proxies:
            self.verdict.done[CUT] -= 1  # nobody has connected through one yet
            return
        proxy, hang_up = self.random.choice(proxies), self.random.random() < 0.5
        proxy.hold()
        self._later.append((time.monotonic() + lasts, lambda: proxy.release(hang_up)))

    def _interpose(self) -> None:
        """Before every socket that has none yet; those of workers that come later, before anybody connects to them."""
        for path in (self.directory.path / "sockets").iterdir():
            if path.name not in self._proxies and path.is_socket() and not path.name.endswith(ASIDE):
                self._proxies[path.name] = Proxy(path)

    # --- looking -------------------------------------------------------------------------------------------------

    def _look(self, cuts: bool) -> None:
        now = time.monotonic()
        for due, undo in [one for one in self._later if one[0] <= now]:
            self._later.remove((due, undo))
            undo()
        if cuts:
            self._interpose()
        self._follow(self._status())

    def _status(self) -> dict[str, Any]:
        try:
            status = self.job.status()
        except SeepError as error:
            raise Gone(f"the flow is gone: {error}") from error
        if status["outcome"] != "running":
            raise Gone(f"the flow has {status['outcome']} before chaos was over {status['report']}".strip())
        return status

    def _follow(self, status: dict[str, Any]) -> None:
        epochs = dict(_sink_epochs(status))
        for partition, epoch in epochs.items():
            if epoch < self._committed.get(partition, -1):
                self.verdict.reordered += 1
            self._committed[partition] = epoch
        least = min(epochs.values(), default=-1)
        for began, highest in [one for one in self._waiting if least > one[1]]:
            self._waiting.remove((began, highest))
            self.verdict.recovery_ms.append((time.monotonic() - began) * 1000)

    def _settle(self) -> None:
        """Let it come to rest."""
        deadline = time.monotonic() + CALM_SECONDS
        while self._waiting and time.monotonic() < deadline:
            self._follow(self._status())
            time.sleep(LOOK_SECONDS)
        for _ in self._waiting:
            self.verdict.problems.append(f"not recovered from a kill within {CALM_SECONDS:.0f} s")

    def _audit(self) -> int:
        """Look into the books; of which epoch."""
        try:
            books = self.job.audit()
        except SeepError as error:
            raise Gone(f"it does not come to rest: {error}") from error
        for edge in books["edges"]:
            self._compare(edge["sent"], edge["taken"])
        for sink in books["sinks"].values():
            self._compare(sink["sent"], sink["committed"])
        self.verdict.problems += [problem for problem in books["problems"] if problem.startswith("node ")]
        return int(books["epoch"])

    def _hear(self, witness: Witness, upto: int) -> None:
        """A row that the books miss is missed by the witness, too: it is lost once."""
        found, problems = witness.judge(upto)
        verdict = self.verdict
        verdict.lost, verdict.duplicated = max(verdict.lost, found.lost), max(verdict.duplicated, found.duplicated)
        verdict.reordered += found.reordered
        verdict.wrong, verdict.compared = found.wrong, found.rows
        verdict.problems += [*problems, *found.examples]

    def _compare(self, sent: int, taken: int | None) -> None:
        if taken is not None:
            self.verdict.lost += max(0, sent - taken)
            self.verdict.duplicated += max(0, taken - sent)


def _highest(status: dict[str, Any]) -> int:
    return max((p["epoch"] or 0 for parts in status["operators"].values() for p in parts), default=0)


def _sink_epochs(status: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name in [name for name, kind in status["kinds"].items() if kind == "sink"]:
        for partition in status["operators"][name]:
            if partition["epoch"] is not None and partition["epoch"] >= 0:
                yield f"{name} {partition['number']}", partition["epoch"]
