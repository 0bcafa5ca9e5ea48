"""When a Replace is committed: near the old ones, or after a while further behind, never to one that hangs."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest

from seep.control import planner
from seep.control.steps import LAG_EPOCHS, PATIENCE_EPOCHS, Known, next_step
from seep.model.care import Spot
from seep.model.ids import EVERYTHING, PartitionId
from seep.protocol.journal import Code, Journal, Poison
from seep.protocol.messages import Status
from seep.sim.stage import chain

A0 = PartitionId("a", 0)


@pytest.mark.parametrize(
    ("behind", "waited", "committed"),
    [
        (LAG_EPOCHS, 0.0, True),
        (LAG_EPOCHS + 1, 0.0, False),
        (LAG_EPOCHS + 1, float(PATIENCE_EPOCHS), False),
        (LAG_EPOCHS + 10, PATIENCE_EPOCHS + 20.0, True),
        (PATIENCE_EPOCHS + 60, PATIENCE_EPOCHS + 60.0, False),
    ],
    ids=["near", "not near", "not yet", "slow, but it moves", "hangs since the beginning"],
)
def test_how_far_behind_shadows_may_be(behind: int, waited: float, committed: bool) -> None:
    journal = planner.first_journal(chain())
    journal = planner.begin(journal, "a", (A0,), EVERYTHING.split(2), 0, handover=False)
    journal = planner.start_shadows(journal, journal.replaces[0], {A0: (3, 20)})
    statuses = {A0: Status(A0, journal.entries[A0].generation, journal.version, 500)}
    for new in journal.replaces[0].new:
        generation = journal.entries[new].generation
        statuses[new] = Status(new, generation, journal.version, 500 - behind, own_checkpoints=1, accepted=True)
    after, why = next_step(journal, journal.replaces[0], Known(journal.version, statuses, waited), hopeless="")
    assert (not after.replaces, "committed" in why) == (committed, committed)


def test_the_last_epoch_of_the_old_code_is_later_than_all_that_was_heard_of_it() -> None:
    graph = chain(deep=True)
    journal = planner.first_journal(graph)
    journal = planner.begin(journal, "a", (A0,), (), 0, handover=False, code="new")
    version = journal.version

    def step(begun: int, heard: dict[str, int], journal: Journal = journal) -> tuple[Journal, str]:
        entries = journal.entries.values()
        statuses = {
            e.partition: Status(e.partition, e.generation, version, 9, heard=heard.get(e.partition.operator, -1))
            for e in entries
        }
        statuses[A0] = with_fields(statuses[A0], begun=begun)
        return next_step(journal, journal.replaces[0], Known(version, statuses, graph=graph), hopeless="")

    assert step(-1, {"b": 9, "out": 9})[1] == "", "it has not stopped yet"
    assert step(9, {"b": 9})[1] == "", "who is furthest behind has not said anything"
    left_out = with_fields(
        journal, poisons=(Poison("b", 50, Spot("", 3, 1), "f"), Poison("rows", 70, Spot("", 3, 1), "f"))
    )
    assert step(9, {"b": 12, "out": 40}, left_out)[0].replaces[0].at == 50, "a row of the old code's was left out there"
    named, why = step(9, {"b": 12, "out": 40})
    assert (named.replaces[0].at, why) == (40, "the old code ends with epoch 40")
    assert step(39, {"b": 90, "out": 90}, named) == (named, ""), "by now it is decided"
    assert step(41, {}, named)[0].replaces[0].at == 41, "one came back further than that"
    done, _ = step(40, {}, named)
    assert (done.replaces, done.codes) == ((), {"a": (Code(41, "new"),)})
