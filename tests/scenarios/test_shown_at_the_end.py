"""A sink whose worker dies after its last commit: what it still held back becomes visible all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import seep
from seep.running.job import Job
from tests.scenarios.oracles import until, written_rows

ROWS = [{"n": n} for n in range(200)]


def test_the_last_files_are_written_by_the_successor(begin: Callable[..., Job], tmp_path: Path) -> None:
    files = tmp_path / "out"
    flow = seep.Flow("shown", epoch="50ms", checkpoint="200ms")  # the first file would come after a second
    flow.source("numbers", seep.MemorySource(ROWS, per_epoch=5)).sink("out", seep.FileSink(files, format="jsonl"))
    job = begin(flow)
    files.write_text("in the way")  # what is committed cannot be shown
    until(lambda: _committed(job) == len(ROWS), "all rows are committed")
    job.kill("out", 0)
    files.unlink()
    job.wait(60)
    assert [row["n"] for row in written_rows(files)] == list(range(len(ROWS)))


def _committed(job: Job) -> int:
    statuses = job.host.view.statuses
    return max((s.statistics["rows_in"] for p, s in statuses.items() if p.operator == "out"), default=0)
