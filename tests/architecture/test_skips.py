"""In CI a server test that is skipped is a failure: the rule of tests/conftest.py, tried on a suite of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SUITE = """
import pytest

@pytest.mark.server
def test_server():
    pytest.skip("no server here")

def test_plain():
    pytest.skip("not on this system")

@pytest.mark.server
@pytest.mark.xfail
def test_known():
    assert False
"""


@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 failed, 1 skipped, 1 xfailed"), ("", "2 skipped, 1 xfailed")])
def test_skipped_server_test(tmp_path: Path, ci: str, outcome: str) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = server: x\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False
    )
    assert outcome in done.stdout, done.stdout + done.stderr


def test_a_module_that_leaves_itself_out(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_suite.py").write_text("import pytest\npytest.importorskip('nothing_of_that_name')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CI": "true"}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, done.stdout
