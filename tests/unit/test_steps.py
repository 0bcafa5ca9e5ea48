"""When a Replace is committed: near the old ones, or after a while further behind, never to one that hangs."""

from __future__ import annotations

import pytest

from seep.control import planner
from seep.control.steps import LAG_EPOCHS, PATIENCE_EPOCHS, Known, next_step
from seep.model.ids import EVERYTHING, PartitionId
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
    after, why = next_step(journal, journal.replaces[0], Known(journal.version, statuses, waited), late=False)
    assert (not after.replaces, "committed" in why) == (committed, committed)
