"""A job whose state is in Redis: workers, the server and the whole job are killed, and the output is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import seep
from seep.backends.process import end_workers
from tests.scenarios.conftest import Start
from tests.scenarios.oracles import advance, assert_exact, counting, epoch_of, until, written_rows
from tests.scenarios.test_controller_killed import ROWS as PROGRAM_ROWS
from tests.scenarios.test_controller_killed import Program
from tests.scenarios.test_controller_killed import program as program
from tests.servers import RedisServer

ROWS = 40_000

pytestmark = pytest.mark.server


@pytest.mark.timeout(120)
def test_workers_and_the_server_are_killed(begin: Start, redis: RedisServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("redis", ROWS, gate, parts=2), workers=3, store=redis.url)
    advance(job, 10)
    job.kill("count", 0)
    advance(job, 10)
    redis.kill()
    held = epoch_of(job, "counts")
    redis.start()
    until(lambda: epoch_of(job, "counts") > held + 5, "epochs after the server came back")
    with redis.paused():
        job.kill("count", 1)
    advance(job, 10)
    job.savepoint("kept")
    assert job.audit()["balanced"]
    assert not list((job.directory.path / "store").rglob("*.checkpoint")), "all of it is in the server"
    gate.touch()
    assert_exact(job.wait(60.0)["counts"].to_pylist(), ROWS)


@pytest.mark.timeout(120)
def test_all_processes_are_killed_and_the_job_resumed(program: Program, redis: RedisServer) -> None:
    program.run("--store", redis.url)
    until(program.answers, "the flow to run", 60)
    program.advance(20)
    program.kill()
    end_workers(program.directory)
    flow = counting("left", PROGRAM_ROWS, program.gate, program.files)
    redis.kill()
    with pytest.raises(seep.Misuse, match="does not answer"):
        seep.start(flow, resume=True)
    redis.start()
    with pytest.raises(seep.Misuse, match="keeps its state in"):
        seep.start(flow, resume=True, store=f"{redis.url}1")
    program.run("--resume")
    assert "left has ended" in program.finish()
    assert_exact(written_rows(program.files), PROGRAM_ROWS)


@pytest.mark.timeout(60)
def test_a_server_that_came_back_empty_stops_the_flow(begin: Start, redis: RedisServer, tmp_path: Path) -> None:
    job = begin(counting("emptied", ROWS, tmp_path / "gate"), store=redis.url)
    advance(job, 10)
    redis.empty()
    redis.start()
    with pytest.raises(seep.DataLoss, match="lost what was written"):
        job.wait(40.0)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_data_of_an_emptied_server_is_brought_back_and_the_job_resumed(
    program: Program, redis: RedisServer
) -> None:
    program.run("--store", redis.url)
    until(program.answers, "the flow to run", 60)
    program.advance(20)
    redis.put_aside()
    redis.start()
    code, output = program.wait(40)
    assert (code, "lost what was written" in output) == (1, True)
    program.run("--resume")  # while it is empty: neither begun anew, nor told to begin anew
    code, output = program.wait(40)
    assert code == 1
    assert output.startswith(f"seep: the store {redis.url} has lost what was written to it")
    assert len(output.splitlines()) == 1
    redis.put_back()
    redis.start()
    program.run("--resume")
    assert "left has ended" in program.finish()
    assert_exact(written_rows(program.files), PROGRAM_ROWS)


def test_a_store_that_is_none() -> None:
    with pytest.raises(seep.Misuse, match="there is redis://HOST:PORT/DATABASE"):
        seep.start(counting("none", 10, Path("gate")), store="s3://bucket")
