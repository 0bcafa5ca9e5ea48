"""The controller's own numbers: there from the start, and what they make of one journal after the other."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from seep.control import governor, planner
from seep.model.ids import EVERYTHING, PartitionId
from seep.partition.contract import Graph, Node
from seep.protocol.journal import Journal
from seep.protocol.messages import Status
from seep.runtime.controllernumbers import FAMILIES, HISTOGRAMS, Changes, snapshot
from seep.runtime.exporter import Exporter

WORK = PartitionId("work", 0)


def placed(worker: str = "w1") -> Journal:
    return planner.restart(planner.first_journal(Graph({"work": Node("work", "operator", None)}, ())), WORK, worker)


def split(journal: Journal) -> Journal:
    return planner.begin(journal, "work", [WORK], EVERYTHING.split(2), 0, handover=False)


def committed(journal: Journal) -> Journal:
    shadows = planner.start_shadows(journal, journal.replaces[0], {WORK: (1, 5)})
    return planner.commit(shadows, shadows.replaces[0], 9)


def looked(*journals: Journal) -> Changes:
    """At one journal a second."""
    changes = Changes()
    for second, journal in enumerate(journals):
        changes.look(journal, 1000.0 * second, {"w1", "w2"}, {})
        changes.look(journal, 1000.0 * second + 1, {"w1", "w2"}, {})
    return changes


def test_a_committed_replace_is_timed() -> None:
    begun = split(placed())
    changes = looked(placed(), begun, begun, committed(begun))
    assert (sum(changes.replaced.counts), changes.replaced.sum_ms) == (1, 2000.0)
    assert changes.recoveries == 0


def test_a_hand_over_is_timed_too() -> None:
    begun = planner.begin(placed(), "work", [WORK], [EVERYTHING], 4, handover=True)
    changes = looked(begun, planner.commit_handover(begun, begun.replaces[0]))
    assert changes.replaced.sum_ms == 1000.0


def test_what_is_given_up_and_savepoints_are_not() -> None:
    begun = split(placed())
    saved = planner.begin(placed(), "", [WORK], (), 7, handover=False)
    for pending in (begun, saved):
        changes = looked(pending, planner.abort(pending, pending.replaces[0]))
        assert sum(changes.replaced.counts) == 0


def test_a_partition_that_comes_back_elsewhere_is_a_recovery() -> None:
    first = planner.first_journal(Graph({"work": Node("work", "operator", None)}, ()))
    journal = placed()
    assert looked(first, journal).recoveries == 0, "that was its start"
    assert looked(first, journal, planner.restart(journal, WORK, "w2")).recoveries == 1


def told(journal: Journal, epoch: int) -> dict[PartitionId, Status]:
    return {WORK: Status(WORK, journal.entries[WORK].generation, journal.version, epoch)}


def test_a_recovery_lasts_until_the_partition_is_further_on() -> None:
    changes, before = Changes(), placed()
    after = planner.restart(before, WORK, "w2")
    changes.look(before, 0.0, {"w1", "w2"}, told(before, 7))
    changes.look(before, 1_000.0, {"w2"}, told(before, 7))  # its worker is missed
    changes.look(after, 1_100.0, {"w2"}, told(before, 7))
    changes.look(after, 1_200.0, {"w2"}, told(after, -1))  # it has started
    changes.look(after, 1_300.0, {"w2"}, told(after, 7))  # it has what it had
    assert sum(changes.recovered.counts) == 0
    changes.look(after, 1_400.0, {"w2"}, told(after, 8))
    assert (sum(changes.recovered.counts), changes.recovered.sum_ms) == (1, 400.0)
    changes.look(after, 1_500.0, {"w2"}, told(after, 9))
    assert (sum(changes.recovered.counts), changes.recoveries) == (1, 1)


def test_what_others_take_the_place_of_is_no_longer_waited_for() -> None:
    changes, begun = Changes(), split(placed())
    changes.look(begun, 0.0, {"w2"}, told(begun, 7))
    over = committed(begun)
    changes.look(over, 100.0, {"w2"}, {})
    changes.look(placed(), 200.0, {"w1"}, told(placed(), 9))
    assert sum(changes.recovered.counts) == 0


def test_every_reason_of_the_governor_is_known() -> None:
    """Read from its text: what stands before a colon where something is held back."""
    text = Path(governor.__file__).read_text()
    words = set(re.findall(r'(?:held =|raised =|return|,) f?"([a-z-]+): ', text))
    assert words == set(governor.HELD)


def test_all_is_served_from_the_start() -> None:
    exporter = Exporter(lambda: snapshot(["work"], placed(), 2, Changes(), {"metrics": 3}), FAMILIES, HISTOGRAMS)
    port = exporter.serve()
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    finally:
        exporter.close()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {family.name.removesuffix("_total") for family in FAMILIES}
    values = {(s.name, *s.labels.values()): s.value for family in families.values() for s in family.samples}
    assert all(("seep_controller_held_total", reason) in values for reason in governor.HELD)
    assert values["seep_controller_held_total", "metrics"] == 3
    assert values["seep_controller_held_total", "backlog"] == 0
    assert values["seep_controller_decisions_total", "out"] == 0
    assert values["seep_controller_partitions", "work"] == 1
    assert values["seep_controller_workers",] == 2
    assert values["seep_controller_replace_seconds_count",] == 0
    assert values["seep_controller_recoveries_total",] == 0
    assert values["seep_controller_recovery_seconds_count",] == 0
