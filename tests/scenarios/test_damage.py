"""Checkpoints flipped on the disk while their worker is down: the older copy, or a stop with a report."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from seep.model.ids import PartitionId
from seep.running.job import Job
from tests.scenarios.oracles import advance, assert_exact, counting, expected, process_of, send_signal, until

ROWS = 30_000


def checkpoints(job: Job, partition: str) -> list[Path]:
    """Oldest first."""
    home = job.directory.path / "store" / "partitions" / partition.replace("/", "~")
    return sorted(home.glob("*.checkpoint"), key=lambda path: int(path.name.split(".")[0]))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def damage(job: Job, newest_only: bool, holders_too: bool = True) -> int:
    """Stop the worker of count/0, flip bits in its checkpoints, kill it (and those that hold copies in memory); how
    many were flipped."""
    holders = {entry.worker for entry in job.journal.live("numbers")} if holders_too else set()
    entry = job.journal.live("count")[0]
    process = process_of(job.directory, entry.worker)
    send_signal(process, signal.SIGSTOP)
    found = checkpoints(job, str(entry.partition))
    for path in found[-1:] if newest_only else found:
        flip(path)
    for holder in holders:
        send_signal(process_of(job.directory, holder), signal.SIGKILL)
    send_signal(process, signal.SIGKILL)
    until(lambda: entry.worker not in job.host.view.workers, "the loss to be seen")
    return len(found)


@pytest.mark.timeout(90)
def test_a_damaged_newest_checkpoint_costs_only_a_longer_replay(begin: Callable[..., Job], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("damaged", ROWS, gate), workers=3)
    for _ in range(2):
        advance(job, 30)
        assert damage(job, newest_only=True) >= 2
        home = job.directory.path / "store" / "partitions" / "count~0"
        until(lambda home=home: list(home.glob("*.damaged")), "it to be set aside")  # type: ignore[misc]
        advance(job, 5)
    gate.touch()
    assert_exact(job.wait(60)["counts"].to_pylist(), ROWS)


@pytest.mark.timeout(90)
def test_a_copy_in_upstream_memory_stands_in_for_every_damaged_one(begin: Callable[..., Job], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("remembered", ROWS, gate), workers=3)
    advance(job, 30)
    until(lambda: job.host.view.statuses[PartitionId("count", 0)].statistics["held_version"], "a copy to be held")
    damage(job, newest_only=False, holders_too=False)
    advance(job, 30)
    gate.touch()
    assert_exact(job.wait(60)["counts"].to_pylist(), ROWS)


@pytest.mark.timeout(90)
def test_when_the_store_is_gone_the_flow_stops_and_says_so(begin: Callable[..., Job], tmp_path: Path) -> None:
    job = begin(counting("emptied", ROWS, tmp_path / "gate"), workers=2)
    advance(job, 30)
    (job.directory.path / "store").rename(tmp_path / "elsewhere")
    (job.directory.path / "store").mkdir()
    until(lambda: job.host.outcome, "the flow to stop", 60)
    assert job.host.outcome == "failed"
    assert "the store has lost what was written to it" in job.host.report


@pytest.mark.timeout(90)
def test_when_every_copy_is_damaged_the_flow_stops_and_says_so(begin: Callable[..., Job], tmp_path: Path) -> None:
    job = begin(counting("lost", ROWS, tmp_path / "gate"), workers=3)
    advance(job, 30)
    damage(job, newest_only=False)
    until(lambda: job.host.outcome, "the flow to stop", 60)
    assert job.host.outcome == "failed"
    assert job.host.report == "count/0: none of its checkpoints can be used; restore from a savepoint"
    last: dict[str, int] = {}
    for row in job.result()["counts"].to_pylist():
        assert row["count"] > last.get(row["key"], 0)
        last[row["key"]] = row["count"]
    full = expected(ROWS)
    assert all(count <= full[key][0] for key, count in last.items())
