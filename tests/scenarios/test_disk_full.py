"""The disk of the job fills up: nothing is lost, the flow holds back, and goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seep.running.job import Job
from tests.scenarios.oracles import advance, assert_exact, counting, epoch_of, until
from tests.scenarios.test_damage import checkpoints
from tests.scenarios.test_metrics import scrape

ROWS = 30_000


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(path)], check=False)
    if made.returncode:
        pytest.skip("no disk can be mounted here")
    monkeypatch.setenv("SEEP_HOME", str(path))
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.timeout(120)
def test_a_full_disk_holds_the_flow_back_and_nothing_is_lost(
    small_disk: Path, begin: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(small_disk))
    gate = tmp_path / "gate"
    job = begin(counting("full", ROWS, gate))
    advance(job, 20)
    kept = checkpoints(job, "count/0")
    fill(small_disk / "filler")
    time.sleep(1.5)
    held = epoch_of(job, "counts")
    time.sleep(1.0)
    assert epoch_of(job, "counts") <= held + 1, "nothing is announced that is not logged"
    assert not job.host.outcome
    newest = checkpoints(job, "count/0")
    assert len(newest) >= min(2, len(kept))
    until(lambda: sum(scrape(job)["seep_worker_store_failures_total"].values()) > 0, "the alarm")
    (small_disk / "filler").unlink()
    advance(job, 10)
    gate.touch()
    assert_exact(job.wait(60)["counts"].to_pylist(), ROWS)
