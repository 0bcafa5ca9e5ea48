"""kill -9 of the controller's process, of Spark's driver, of all; `--resume` goes on, and the files are exact."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.executors import executor_of
from seep.cli import client
from seep.errors import SeepError
from seep.model.ids import PartitionId
from seep.protocol.effects import ReadJournal, ReadLog
from seep.runtime.job import JobDirectory, process_began
from tests.scenarios.oracles import assert_exact, process_of, send_signal, until, written_rows

ROWS = 30_000
ROOT = Path(__file__).parents[2]
APP = """
from pathlib import Path
from tests.scenarios.oracles import counting
flow = counting("left", {rows}, Path({gate!r}), Path({files!r}))
"""


class Program:
    """`seep run app.py` as a process of its own."""

    def __init__(self, path: Path, home: Path) -> None:
        self.gate, self.files, self.home = path / "gate", path / "files", home
        self.app = path / "app.py"
        self.app.write_text(APP.format(rows=ROWS, gate=str(self.gate), files=str(self.files)))
        self.output = path / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *options: str) -> None:
        call = "from seep.cli.main import main; main()"
        # Not a pipe: what a killed driver leaves behind would hold it open.
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", call, "run", str(self.app), *options],
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def answers(self) -> bool:
        try:
            return client.ask("left", "GET", "status")["outcome"] == "running"
        except SeepError:
            return False

    @property
    def directory(self) -> JobDirectory:
        return JobDirectory(self.home / "left")

    def workers(self) -> dict[str, int]:
        directory = self.directory
        found = {worker: process_of(directory, worker) for worker in directory.registered()}
        return {worker: process for worker, process in found.items() if process_began(process)}

    def committed(self) -> int:
        """The last epoch in the sink's log, read as anyone can."""
        reply = self.directory.store().perform(ReadLog(0, PartitionId("counts", 0)))
        return max((epoch for epoch, _ in (reply.value if reply and reply.value else ())), default=0)

    def advance(self, epochs: int, seconds: float = 30.0) -> None:
        goal = self.committed() + epochs
        until(lambda: self.committed() >= goal, f"epoch {goal} committed", seconds)

    def term(self) -> int:
        reply = self.directory.store().perform(ReadJournal(0))
        return int(reply.value.term) if reply and reply.value else 0

    def finish(self, seconds: float = 60.0) -> str:
        self.gate.touch()
        code, output = self.wait(seconds)
        assert code == 0, output
        return output

    def wait(self, seconds: float) -> tuple[int, str]:
        assert self.process is not None
        code = self.process.wait(seconds)
        return code, self.output.read_text(errors="replace")


@pytest.fixture
def program(tmp_path: Path, home: Path) -> Iterator[Program]:
    one = Program(tmp_path, home)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.kill()


@pytest.mark.timeout(120)
def test_workers_go_on_without_a_controller_and_the_next_one_adopts_them(program: Program) -> None:
    program.run()
    until(program.answers, "the flow to run", 60)
    program.advance(10)
    workers, term = program.workers(), program.term()
    program.kill()
    program.advance(20)
    assert program.workers() == workers
    program.run("--resume")
    until(lambda: program.term() > term, "the new controller", 60)
    program.advance(10)
    assert workers.items() <= program.workers().items(), "adopted, not replaced"
    assert "left has ended" in program.finish()
    assert_exact(written_rows(program.files), ROWS)
    assert program.workers() == {}


@pytest.mark.timeout(120)
def test_everything_is_killed_and_resumed(program: Program) -> None:
    program.run()
    until(program.answers, "the flow to run", 60)
    program.advance(20)
    assert program.process is not None
    for process in [program.process.pid, *program.workers().values()]:
        send_signal(process, signal.SIGKILL)
    program.kill()
    until(lambda: not program.workers(), "all to be gone")
    committed = program.committed()
    program.run("--resume")
    program.advance(5)
    assert program.committed() > committed
    program.finish()
    assert_exact(written_rows(program.files), ROWS)


@pytest.mark.server
@pytest.mark.skipif(shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="no Java")
@pytest.mark.timeout(240)
def test_the_spark_driver_is_killed_and_resumed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.extraJavaOptions -Dgiven.by=user\n")
    options = ("--on", "spark", "--master", "local-cluster[1,4,900]")
    program.run(*options)
    until(lambda: (program.home / "left" / "begun").exists(), "the flow to begin", 60)
    program.advance(20, seconds=90)
    workers, term = program.workers(), program.term()
    executor = executor_of(next(iter(workers.values())))
    assert b"-Dgiven.by=user" in Path(f"/proc/{executor}/cmdline").read_bytes(), "Spark's own settings count"
    program.kill()
    program.run("--resume", *options)
    until(lambda: program.term() > term, "the new controller", 60)
    assert not workers.keys() & program.workers().keys(), "whatever the old driver left was ended"
    assert "left has ended" in program.finish(seconds=120)
    assert_exact(written_rows(program.files), ROWS)
    assert program.workers() == {}


@pytest.mark.timeout(60)
def test_nothing_to_resume_is_one_line(program: Program) -> None:
    program.run("--resume")
    code, output = program.wait(50)
    assert code == 2
    assert output.startswith("seep: flow 'left' has nothing to resume")
    assert len(output.splitlines()) == 1
