"""The command line where what is outside does not take part: files, standard output, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CALL = [sys.executable, "-c", "from seep.cli.main import main; main()"]
APP = """
import seep

flow = seep.Flow("numbers")
rows = flow.source("rows", seep.GeneratorSource(lambda i: {"n": i}, rate=10_000, schema={"n": int}))
rows.sink("out", seep.ConsoleSink())
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))
    path = tmp_path / "app.py"
    path.write_text(APP)
    return str(path)


def ended(*arguments: str, output: int = subprocess.PIPE) -> tuple[int, str]:
    done = subprocess.run([*CALL, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


def test_a_home_that_cannot_be_made_is_refused(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", app)
    code, said = ended("run", app)
    assert (code, len(said.splitlines())) == (2, 1)
    assert said.startswith(f"seep: {app}/numbers cannot be made: {app}: File exists; set SEEP_HOME to")


@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(option: str) -> None:
    wanted = f"seep: {option} /nowhere/x: No such file or directory; give a file that can be written\n"
    assert ended("bench", "keyed-count", option, "/nowhere/x") == (2, wanted)


def test_progress_that_nobody_watches_leaves_no_line() -> None:
    wanted = "seep: kafka --on ray; it runs on: local, spark\n"
    assert ended("bench", "kafka", "--on", "ray") == (2, wanted)


def test_output_that_takes_nothing_is_one_line(app: str) -> None:
    with open("/dev/full", "wb") as full:
        wanted = "seep: standard output: No space left on device; with --debug it says more\n"
        assert ended("graph", app, "--json", output=full.fileno()) == (1, wanted)
        assert "Traceback" in ended("graph", app, "--debug", output=full.fileno())[1]


@pytest.mark.parametrize("arguments", [["graph", "--json"], ["run"], ["run", "--on", "local", "--json"]])
def test_who_reads_no_more_ends_it_quietly(app: str, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    assert ended(*arguments[:1], app, *arguments[1:], output=write) == (1, "")
    os.close(write)


def test_an_inline_run_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(APP.replace("rate=10_000", "rows=10"))
    read, write = os.pipe()
    os.close(read)
    assert ended("run", str(path), "--on", "inline", output=write) == (1, "")
    os.close(write)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_job(app: str, number: int) -> None:
    """Also where Polars has handled it meanwhile, which leaves a wait that it does not end. So does SIGTERM, which
    service managers send: its workers went on for half a minute without it."""
    before = "import polars as pl; pl.LazyFrame({'n': [1]}).select(pl.col('n') + 1).collect()"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}; {CALL[-1]}", "run", app], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        while "out: " not in process.stdout.readline():
            pass
        process.send_signal(number)
        said = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    assert (process.returncode, said.splitlines()[-1]) == (0, "numbers has ended")
