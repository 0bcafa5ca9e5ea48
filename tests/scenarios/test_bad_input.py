"""What a user gets for a wrong app, from the program itself: one line that names the place, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALL = "from seep.cli.main import main; main()"
START = """
import polars as pl
import seep

flow = seep.Flow("wrong")
rows = flow.source("rows", seep.MemorySource([{"k": "a", "n": 1, "f": 1.5, "l": [1]}]))
"""
SINK_NOBODY_FEEDS = """
from seep.flow.logical import Vertex
rows.collect("all")
alone = Vertex("sink", "sink", "app.py:10", {}, seep.MemorySink(), settings={"schema": rows.schema})
flow.claim("alone", alone)
flow.add(alone)
"""
CASES = {
    "unknown column": ('rows.select("x").collect("out")', "app.py:7: select: unknown column 'x'; there are k, n"),
    "two of one name": (
        'rows.collect("rows")',
        "app.py:7: collect: the name 'rows' is taken by the source of app.py:6",
    ),
    "float key": ('rows.key_by("f")', "app.py:7: key_by: cannot key by 'f'"),
    "nested key": ('rows.key_by("l")', "app.py:7: key_by: cannot key by 'l'"),
    "neighbours": ('rows.with_columns(s=pl.col("n").cum_sum())', "app.py:7: with_columns: the expression looks at"),
    "bad duration": ('rows.key_by("k").window(seep.tumbling("1 minute"))', "app.py:7: tumbling: duration '1 minute'"),
    "a sink nobody feeds": (SINK_NOBODY_FEEDS, "nobody feeds the sink 'alone'"),
    "a function that raises": ('raise OSError("no\\nluck")', "app.py:7: OSError: no luck"),
    "no Python": ("def (", "app.py:7: SyntaxError"),
}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("case", CASES)
def test_one_line_exit_code_2_and_no_traceback(tmp_path: Path, case: str) -> None:
    source, says = CASES[case]
    (tmp_path / "app.py").write_text(START + source + "\n")
    environment = {**os.environ, "SEEP_HOME": str(tmp_path / "home")}
    running = {
        verb: subprocess.Popen(
            [sys.executable, "-c", CALL, verb, "app.py"],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for verb in ("check", "run")
    }
    for verb, process in running.items():
        output, _ = process.communicate(timeout=80)
        assert process.returncode == 2, f"{verb}: {output}"
        assert says in output, verb
        assert len(output.splitlines()) == 1, output
    assert not (tmp_path / "home" / "wrong" / "store").exists(), "refused before anything started"
