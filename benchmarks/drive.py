"""A job under load, driven from outside: when it is steady, what has arrived, who runs where, how it ended."""

from __future__ import annotations

import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import seep
from benchmarks.arrivals import Arrival, Tail
from benchmarks.load import FIRST, SECOND, SINK, SOURCE, Numbers, place_in_split, split_of
from seep.connectors.generator import SPLITS
from seep.errors import Retry
from seep.model.ids import PartitionId
from seep.protocol.effects import ReadLog
from seep.protocol.journal import LIVE, Entry, Journal
from seep.running import Job
from seep.running.result import records_of
from seep.runtime.job import JobDirectory

STEADY_SECONDS = 4.0
STUCK_SECONDS = 60.0
POLL_SECONDS = 0.01


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for everything a benchmark writes; flows started meanwhile keep their state in it."""
    before = os.environ.get("SEEP_HOME")
    with tempfile.TemporaryDirectory(prefix="seep-bench-", ignore_cleanup_errors=True) as home:
        os.environ["SEEP_HOME"] = home
        try:
            yield Path(home)
        finally:
            if before is None:
                del os.environ["SEEP_HOME"]
            else:
                os.environ["SEEP_HOME"] = before


class Recorded(Protocol):
    """What can be known of a job from its directory, whoever controls it."""

    @property
    def directory(self) -> JobDirectory: ...

    @property
    def journal(self) -> Journal: ...


class Watched(ABC):
    """A running job of `Load.flow` at a fixed rate, as its arrivals show it."""

    def __init__(self, path: Path, rate: float) -> None:
        self.path = path
        self.rate = rate
        self.arrivals: list[Arrival] = []
        self.highest = 0
        """The latest epoch that has arrived."""
        self._tail = Tail(path)
        self._began_ns: dict[int, int] = {}
        """When each split began to release rows, on the monotonic clock."""

    @property
    @abstractmethod
    def recorded(self) -> Recorded:
        """The job's directory and journal."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """As `seep ps` shows it."""

    @abstractmethod
    def problem(self) -> str:
        """Why it does not run any more; empty while it does."""

    @abstractmethod
    def kill(self, worker: str) -> None:
        """SIGKILL."""

    @abstractmethod
    def drain(self) -> dict[int, int]:
        """Stop the sources, let everything reach the sink; how many rows each split has given."""

    @abstractmethod
    def close(self) -> None:
        """End everything that still runs."""

    # --- watching ------------------------------------------------------------------------------------------------

    def look(self) -> list[Arrival]:
        """What has arrived since the last look. Raises when the job has ended by itself."""
        news = self._tail.news()
        self.arrivals += news
        self.highest = max([self.highest, *(a.epoch for a in news)])
        if problem := self.problem():
            raise Retry(problem)
        return news

    def until(self, done: Callable[[], bool], what: str, seconds: float = STUCK_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while self.look() is not None and not done():
            if time.monotonic() > deadline:
                raise Retry(f"{what}: not within {seconds:.0f} s; {self._situation()}")
            time.sleep(POLL_SECONDS)

    def rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            time.sleep(POLL_SECONDS)

    def steady(self, rows: int = 0) -> None:
        """Until rows arrive, so many at least, and the start is over."""
        self.until(lambda: any(a.newest >= rows for a in self.arrivals[-20:]), "the first rows", 2 * STUCK_SECONDS)
        self._clock()
        self.rest(STEADY_SECONDS)
        self.until(self.keeps_up, "keeping up with the load", 2 * STUCK_SECONDS)

    def keeps_up(self) -> bool:
        recent = self.recent_lags_ms(1.0)
        return bool(recent) and recent[-1] < 500

    def _clock(self) -> None:
        skew_ns = time.monotonic_ns() - time.time_ns()
        for cut in last_cuts(self.recorded):
            for split, known in cut["splits"].items():
                if known[1] is not None:
                    self._began_ns[int(split)] = known[1][1] * 1_000_000 + skew_ns
        if len(self._began_ns) < SPLITS:
            raise Retry("some splits of the source have not begun")

    def released_ns(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """When the open load released these rows, on the monotonic clock."""
        began = np.array([self._began_ns[split] for split in range(SPLITS)], float)
        return np.asarray(began[split_of(numbers)] + place_in_split(numbers) / (self.rate / SPLITS) * 1e9)

    def lag_ms(self, arrival: Arrival) -> float:
        """From the release of the newest row in it to its arrival at the sink."""
        return float(arrival.at_ns - self.released_ns(np.array([arrival.newest]))[0]) / 1e6

    def recent_lags_ms(self, seconds: float, before_ns: int | None = None) -> list[float]:
        end_ns = time.monotonic_ns() if before_ns is None else before_ns
        found = []
        for arrival in reversed(self.arrivals):
            if arrival.at_ns < end_ns - seconds * 1e9:
                break
            if arrival.at_ns <= end_ns and arrival.newest >= 0:
                found.append(self.lag_ms(arrival))
        return found[::-1]

    # --- who runs ------------------------------------------------------------------------------------------------

    def by_worker(self) -> dict[str, list[Entry]]:
        """The live partitions of each worker that has any."""
        found: dict[str, list[Entry]] = {}
        for entry in self.recorded.journal.entries.values():
            if entry.role == LIVE and entry.worker:
                found.setdefault(entry.worker, []).append(entry)
        return found

    def state_bytes(self) -> dict[str, int]:
        """By operator."""
        operators = self.status()["operators"]
        return {name: sum(p["statistics"].get("state_bytes", 0) for p in operators[name]) for name in (FIRST, SECOND)}

    def processes(self) -> dict[str, int]:
        return {worker: card["process"] for worker, card in self.recorded.directory.registered().items()}

    def _situation(self) -> str:
        journal = self.recorded.journal
        return "\n  ".join([f"journal {journal.version}", *map(str, journal.entries.values())])


class Driven(Watched):
    """One whose controller runs in this process."""

    def __init__(
        self, flow: seep.Flow, path: Path, rate: float, on: str, workers: int, restore: Path | None = None
    ) -> None:
        super().__init__(path, rate)
        self.job: Job = seep.start(flow, on=on, workers=workers, restore=restore)

    @property
    def recorded(self) -> Recorded:
        return self.job

    def status(self) -> dict[str, Any]:
        return self.job.status()

    def problem(self) -> str:
        host = self.job.host
        return f"the flow has {host.outcome}: {host.report}" if host.outcome else ""

    def kill(self, worker: str) -> None:
        self.job.host.backend.kill(worker)

    def drain(self) -> dict[int, int]:
        self.job.stop(drain=True)
        self.job.wait(STUCK_SECONDS)
        self.arrivals += self._tail.news()
        return given_rows(self.job)

    def close(self) -> None:
        self.job.close()

    def _situation(self) -> str:
        view = self.job.host.view
        lines = [f"journal {view.journal.version}, workers {list(view.workers)}"]
        for entry in view.journal.entries.values():
            lines.append(f"{entry} status {view.statuses.get(entry.partition)}")
        lines += [text for _, text in view.decisions[-10:]]
        return "\n  ".join(lines)


def last_cuts(job: Recorded) -> list[dict[str, Any]]:
    """Of each partition the source ever had, the last cut in its epoch log."""
    store, found = job.directory.store(), []
    for number in range(job.journal.next_number.get(SOURCE, 0)):
        reply = store.perform(ReadLog(0, PartitionId(SOURCE, number)))
        if reply is not None and reply.value:
            found.append(reply.value[-1][1])
    return found


def given_rows(job: Recorded) -> dict[int, int]:
    """How many rows each split of the source has given."""
    found: dict[int, int] = {}
    for cut in last_cuts(job):
        for split, known in cut["splits"].items():
            found[int(split)] = max(found.get(int(split), 0), known[1][0] if known[1] is not None else 0)
    return found


def committed(job: Recorded) -> list[tuple[int, bytes | None]]:
    """(epoch, record) of what the sink's logs still hold: committed, but perhaps not published any more."""
    return records_of(SINK, job.journal, job.directory.store().perform)
