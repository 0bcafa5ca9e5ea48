"""Checkpoints and savepoints in an object store: killed, resumed and restored, and it is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import seep
from seep.backends.process import end_workers
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, assert_exact, counting, expected, until, written_rows
from tests.scenarios.test_controller_killed import ROWS as PROGRAM_ROWS
from tests.scenarios.test_controller_killed import Program
from tests.scenarios.test_controller_killed import program as program

ROWS = 20_000


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_is_killed_and_a_savepoint_restored_from_its_address(begin: Start, tmp_path: Path) -> None:
    gate, objects = tmp_path / "gate", f"file://{tmp_path}/objects"
    flow = counting("objects", ROWS, gate, parts=2)
    job = begin(flow, workers=3, checkpoints=objects)
    advance(job, 20)
    until(lambda: list((tmp_path / "objects").glob("*/*/*")), "a checkpoint")
    job.kill("count", 0)
    advance(job, 10)
    address = f"file://{tmp_path}/saved/v1"
    assert job.savepoint(address)["path"] == address
    with pytest.raises(seep.Misuse, match="exists already"):
        job.savepoint(address)
    assert not list((job.directory.path / "savepoints").iterdir())
    assert not list((job.directory.path / "store").rglob("*.checkpoint"))
    gate.touch()
    assert_exact(job.wait(60.0)["counts"].to_pylist(), ROWS)
    job.close()
    again = begin(flow, workers=2, restore=address)
    changes = again.wait(60.0)["counts"].to_pylist()
    assert {row["key"]: (row["count"], row["sum"]) for row in changes} == expected(ROWS)
    assert not list((tmp_path / "objects").glob("*/*/*")), "what the job before had kept there is gone"
    assert not (again.directory.path / "fetched").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_all_processes_are_killed_and_the_job_resumed(program: Program, tmp_path: Path) -> None:
    program.run("--checkpoints", f"file://{tmp_path}/objects")
    until(program.answers, "the flow to run", 60)
    program.advance(20)
    program.kill()
    end_workers(program.directory)
    flow = counting("left", PROGRAM_ROWS, program.gate, program.files)
    with pytest.raises(seep.Misuse, match="keeps its checkpoints in"):
        seep.start(flow, resume=True, checkpoints=f"file://{tmp_path}/other")
    program.run("--resume")
    assert "left has ended" in program.finish()
    assert_exact(written_rows(program.files), PROGRAM_ROWS)


def test_an_address_that_is_none(home: Path, tmp_path: Path) -> None:
    flow = counting("none", 10, tmp_path / "gate")
    for address, why in (("objects", "there is s3://"), ("ftp://x", "such as s3://"), ("file:///proc/x", "written to")):
        with pytest.raises(seep.Misuse, match=why):
            seep.start(flow, checkpoints=address)
    with pytest.raises(seep.Misuse, match="there is no savepoint at"):
        seep.start(flow, restore=f"file://{tmp_path}/nothing")
