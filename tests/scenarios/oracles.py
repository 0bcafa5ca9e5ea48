"""What the real-fault scenarios share: small flows, an answer computed in plain Python, ways to wait and to kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import seep
from seep.connectors.generator import BLOCK_ROWS
from seep.control.requests import ScaleTo
from seep.protocol.journal import Journal, Replace
from seep.running.job import Job
from seep.runtime.job import JobDirectory

KEYS = 17


def number(i: int) -> dict[str, Any]:
    return {"key": f"k{i * 7919 % KEYS}", "n": i}


class Gated(seep.GeneratorSource):
    """Slow until the gate (a file) is there, then as fast as it can: a scenario ends when it has seen enough."""

    block_rows = BLOCK_ROWS

    def __init__(self, rows: int, rate: float, gate: Path, row: Callable[[int], dict[str, Any]] = number) -> None:
        super().__init__(row, rate=rate, rows=rows)
        self.gate = gate

    def _released(self, elapsed_ms: int) -> int:
        return 2**62 if self.gate.exists() else super()._released(elapsed_ms)


def counting(
    name: str, rows: int, gate: Path, files: Path | None = None, parts: int = 1, rate: float = 1_000
) -> seep.Flow:
    """Numbers are counted and summed by key; every change goes to `counts` (and, as files, to `written`)."""
    flow = seep.Flow(name, epoch="20ms", checkpoint="200ms")
    numbers = flow.source("numbers", Gated(rows, rate, gate))
    counted = numbers.key_by("key").aggregate(count=seep.count(), sum=seep.total("n")).named("count").scale(start=parts)
    counted.changes().collect("counts")
    if files is not None:
        counted.changes().sink("written", seep.FileSink(files, format="jsonl"))
    return flow


def expected(rows: int) -> dict[str, tuple[int, int]]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for i in range(rows):
        counts[number(i)["key"]] += 1
        sums[number(i)["key"]] += i
    return {key: (counts[key], sums[key]) for key in counts}


def assert_exact(changes: Iterable[dict[str, Any]], rows: int) -> None:
    """Each key's counts only grow, its first change alone is an insert, its last is the sequential answer."""
    last: dict[str, tuple[int, int]] = {}
    for row in changes:
        before = last.get(row["key"], (0, -1))
        assert row["count"] > before[0], f"{row} after {before}"
        assert (row["change"] == "insert") == (row["key"] not in last), row
        last[row["key"]] = (row["count"], row["sum"])
    assert last == expected(rows)


def written_rows(files: Path) -> list[dict[str, Any]]:
    """What a FileSink has made visible, in the order of its files."""
    return [json.loads(line) for path in sorted(files.glob("*.jsonl")) for line in path.read_text().splitlines()]


def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def epoch_of(job: Job, operator: str) -> int:
    return max((s.epoch for p, s in job.host.view.statuses.items() if p.operator == operator), default=-1)


def advance(job: Job, epochs: int, operator: str = "counts", seconds: float = 30.0) -> None:
    """Until the operator is so many epochs further."""
    goal = epoch_of(job, operator) + epochs
    until(lambda: epoch_of(job, operator) >= goal or job.host.outcome, f"{operator} at epoch {goal}", seconds)
    assert job.host.report == "", job.host.report


def process_of(directory: JobDirectory, worker: str) -> int:
    return int(directory.registered()[worker]["process"])


def send_signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def victim_of(journal: Journal, victim: str) -> str:
    """The worker to kill in a Replace of `count`; empty while it has not come so far."""
    replace = next((r for r in journal.replaces if r.operator == "count"), None)
    if replace is None:
        return ""
    if victim == "new":
        return next((journal.entries[p].worker for p in replace.new if journal.entries[p].worker), "")
    if victim == "old":
        return journal.entries[replace.old[-1]].worker
    return journal.live(victim)[0].worker


def scale_and_kill(job: Job, count: int, victim: str) -> None:
    """Scale `count`, and kill a worker in the middle of it."""
    before = {r.number for r in job.journal.replaces}
    seen: list[Replace] = []
    job.host.request(ScaleTo("count", count))

    def found() -> str:
        seen.extend(r for r in job.journal.replaces if r.operator == "count" and r.number not in before)
        return victim_of(job.journal, victim)

    until(lambda: found() or (seen and not job.journal.replaces), "the Replace")
    worker = victim_of(job.journal, victim)
    if worker:
        send_signal(process_of(job.directory, worker), signal.SIGKILL)
    until(lambda: len(job.journal.live("count")) == count and not job.journal.replaces, "the Replace to end", 60)
