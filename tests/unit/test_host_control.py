"""What a job's host says of a flow that has ended, and of what it cannot do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.control.deaths import SEE_LOGS
from seep.errors import Misuse, Retry
from seep.running.savepoint import new_savepoint
from seep.runtime.control import HostControl
from seep.runtime.controller import FAILED, FINISHED, ControllerHost


def test_nobody_is_killed_once_the_flow_has_ended() -> None:
    machine = SimpleNamespace(graph=SimpleNamespace(nodes={"count": None}))
    view = SimpleNamespace(journal=SimpleNamespace(live=lambda operator: [operator]))
    host: Any = SimpleNamespace(machine=machine, view=view, outcome=FINISHED)
    with pytest.raises(Retry, match="kill count/0: the flow has finished"):
        HostControl("f", host, None).kill("count", 0)  # type: ignore[arg-type]


def test_a_report_names_the_directory_of_the_logs(tmp_path: Path) -> None:
    def told(stopping: str) -> str:
        machine = SimpleNamespace(deposed=False, finished=False, journal=SimpleNamespace(stopping=stopping))
        host: Any = SimpleNamespace(machine=machine, job=SimpleNamespace(path=tmp_path), outcome="", report="")
        ControllerHost._judge(host)
        assert host.outcome == FAILED
        return str(host.report)

    assert told(f"SeepError: s/0 died 25 times; {SEE_LOGS}").endswith(f"; {SEE_LOGS} in {tmp_path / 'workers'}")
    assert told("Misuse: count: no") == "Misuse: count: no"


def test_what_is_no_name_of_a_savepoint_is_refused(tmp_path: Path) -> None:
    for name in (None, 7, "", "a/b"):
        with pytest.raises(Misuse, match="is no name for a savepoint; give some letters"):
            new_savepoint(tmp_path, name)
