"""Checkpoints and a savepoint behind the real S3 protocol, while a worker is killed and the server goes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.servers.s3 import CREDENTIALS, S3Server
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, assert_exact, counting, expected

ROWS = 20_000


@pytest.mark.server
@pytest.mark.timeout(120)
def test_killed_saved_and_restored(begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with S3Server(tmp_path / "s3") as s3:
        gate = tmp_path / "gate"
        flow = counting("in-s3", ROWS, gate, parts=2)
        job = begin(flow, workers=3, checkpoints=s3.url("job"))
        advance(job, 20)
        job.kill("count", 0)
        advance(job, 10)
        with s3.paused():
            advance(job, 10)
        address = s3.url("saved/v1")
        assert job.savepoint(address)["path"] == address
        assert not list((job.directory.path / "store").rglob("*.checkpoint"))
        gate.touch()
        assert_exact(job.wait(60.0)["counts"].to_pylist(), ROWS)
        job.close()
        again = begin(flow, workers=2, restore=address)
        changes = again.wait(60.0)["counts"].to_pylist()
        assert {row["key"]: (row["count"], row["sum"]) for row in changes} == expected(ROWS)
