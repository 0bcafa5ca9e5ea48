"""The verbs on a running job in the words users know: positions, whole numbers, one line when it cannot be."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seep.errors import Misuse, Retry
from seep.running.job import Job
from tests.scenarios.oracles import advance, counting


@pytest.mark.timeout(60)
def test_positions_counts_and_a_pool(
    begin: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(counting("verbs", 30_000, tmp_path / "gate"), workers=1, spare=2)
    advance(job, 3)
    while len(job.status()["workers"]) < 3:  # one that is used, two warm ones
        time.sleep(0.02)

    planned = job.scale("count", 2, dry_run=True)
    assert (planned["now"], list(planned["old"]), len(planned["new"])) == (1, ["count/0"], 2)
    assert len(job.journal.live("count")) == 1
    job.scale("count", 2)
    live = job.journal.live("count")
    assert [f"{e.key_range.low}-{e.key_range.high - 1}" for e in live] == planned["new"]
    # Their numbers are other ones by now; nobody is shown them as if they were positions.
    assert [entry.partition.number for entry in live] == [1, 2]
    assert [one["partition"] for one in job.status()["operators"]["count"]] == ["count/0", "count/1"]
    assert job.kill("count", 0)["partition"] == "count/0"
    while not any("count/0 restarts on" in step["what"] for step in job.explain()["steps"]):
        time.sleep(0.02)
    assert not any("count/2" in step["what"] for step in job.explain()["steps"])

    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: job.scale("count", 2.5), "count=2.5; give a whole number"),  # type: ignore[arg-type]
        (lambda: job.scale("count", "3"), "count='3'; give a whole number"),  # type: ignore[arg-type]
        (lambda: job.scale("count", 0), "count may have 1 to 16 partitions, not 0"),
        (lambda: job.kill("count", "0"), "index='0'; give a whole number"),  # type: ignore[arg-type]
        (lambda: job.kill("count", 7), "there is no count/7"),
    ]
    for call, says in wrong:
        with pytest.raises(Misuse, match=says):
            call()
    monkeypatch.setattr(job.host, "kill", lambda _: "")  # between two workers nobody runs it
    with pytest.raises(Retry, match="nobody runs count/1 at the moment"):
        job.kill("count", 1)


@pytest.mark.timeout(60)
def test_what_was_there_and_what_is_not_there_is_said(
    begin: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begin(counting("again", 30_000, tmp_path / "gate"))
    advance(job, 1)
    job.close()
    assert capsys.readouterr().err == ""
    begin(counting("again", 30_000, tmp_path / "gate"), prometheus="http://127.0.0.1:9")
    replaced, unread = capsys.readouterr().err.splitlines()
    assert re.fullmatch("seep: the state of an earlier run is in .*again, and is replaced now; --resume .*", replaced)
    assert re.fullmatch("seep: Prometheus at http://127.0.0.1:9: .*; nothing is scaled .*", unread)
