"""What a job's host says of a flow that has ended, and of what it cannot do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seep.control import planner
from seep.control.deaths import SEE_LOGS
from seep.errors import Misuse, Retry
from seep.protocol.journal import Journal
from seep.running.savepoint import new_savepoint
from seep.running.scaled import scaled
from seep.runtime.control import HostControl
from seep.runtime.controller import FAILED, FINISHED, ControllerHost
from seep.sim.stage import chain


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


def test_who_scales_is_answered_although_somebody_else_scales_at_once() -> None:
    """The next change begins with the commit of the one before, in one write: who had asked for that one waited for a
    minute, and was told that it was not done."""
    graph = chain(starts={"a": 2})

    def begun(journal: Journal, parts: int) -> Journal:
        old = [entry.partition for entry in journal.live("a")][:1]
        ranges = journal.entries[old[0]].key_range.split(parts)
        journal = planner.begin(journal, "a", old, ranges, 0, handover=False)
        return planner.start_shadows(journal, journal.replaces[0], dict.fromkeys(old, (3, 20)))

    def committed(journal: Journal) -> Journal:
        return planner.commit(journal, journal.replaces[0], 30)

    def done(before: Journal, count: int, *later: Journal) -> list[bool]:
        host: Any = SimpleNamespace(view=SimpleNamespace(journal=before))
        asked, found = scaled(host, "a", count), []
        for host.view.journal in (before, *later):
            found.append(asked())
        return found

    two = planner.first_journal(graph)
    three = committed(begun(two, 2))
    assert done(two, 3, begun(two, 2), three) == [False, False, True]
    assert done(two, 3, begun(two, 2), begun(three, 3)) == [False, False, True], "and on to five"
    assert done(two, 2) == [True], "as it is"
    assert done(begun(two, 2), 2, three) == [False, False], "a policy is changing it: first there will be three"
    assert done(begun(two, 2), 2, planner.abort(begun(two, 2), begun(two, 2).replaces[0])) == [False, True]
