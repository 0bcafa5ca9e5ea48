"""Workers: as many as are wanted, and none for long that have nothing to do."""

from __future__ import annotations

from seep.control import planner
from seep.control.pool import START_WAIT, Pool
from seep.model.ids import PartitionId
from seep.model.settings import Settings
from seep.protocol.effects import ReleaseWorker, WantWorkers
from seep.protocol.journal import Journal
from seep.sim.stage import chain

SETTINGS = Settings(spare_workers=1, release_ms=100.0)


def placed(*workers: str) -> Journal:
    journal = planner.first_journal(chain(starts={"a": 2}))
    for partition, worker in zip(sorted(journal.entries), workers, strict=True):
        journal = planner.restart(journal, partition, worker)
    return journal


def test_one_for_each_used_and_the_spare_ones() -> None:
    pool = Pool(2, SETTINGS)
    journal = placed("w1", "w2", "w3", "w1")
    assert list(pool.look(journal, ["w1", "w2", "w3"], 0.0)) == [WantWorkers(4)]
    assert list(pool.look(journal, ["w1", "w2", "w3", "w4"], 1.0)) == []


def test_those_beyond_that_go_after_a_while_the_longest_idle_first() -> None:
    pool = Pool(1, SETTINGS)
    journal = placed("w1", "w1", "w1", "w1")
    list(pool.look(journal, ["w1", "w3"], 0.0))
    assert list(pool.look(journal, ["w1", "w2", "w3"], 50.0)) == []
    assert list(pool.look(journal, ["w1", "w2", "w3"], 99.0)) == []
    assert list(pool.look(journal, ["w1", "w2", "w3"], 160.0)) == [ReleaseWorker("w3")]
    assert pool.released == {"w3"}
    assert list(pool.look(journal, ["w1", "w2"], 1_000.0)) == []


def test_one_that_was_at_work_meanwhile_rests_from_then_on() -> None:
    pool = Pool(1, SETTINGS)
    list(pool.look(placed("w1", "w1", "w1", "w1"), ["w1", "w2", "w3"], 0.0))
    list(pool.look(placed("w1", "w2", "w3", "w1"), ["w1", "w2", "w3"], 50.0))
    after = placed("w1", "w1", "w1", "w1")
    assert not [e for e in pool.look(after, ["w1", "w2", "w3"], 120.0) if isinstance(e, ReleaseWorker)]
    assert [e for e in pool.look(after, ["w1", "w2", "w3"], 220.0) if isinstance(e, ReleaseWorker)]


def test_a_shadow_without_a_place_wants_one() -> None:
    pool = Pool(1, SETTINGS)
    journal = placed("w1", "w1", "w1", "w1")
    a0 = PartitionId("a", 0)
    journal = planner.begin(journal, "a", (a0,), journal.entries[a0].key_range.split(2), 0, handover=False)
    journal = planner.start_shadows(journal, journal.replaces[0], {a0: (3, 20)})
    assert list(pool.look(journal, ["w1", "w2"], 0.0)) == [WantWorkers(4)]


def test_what_is_wanted_and_does_not_come_is_said_after_a_while() -> None:
    pool = Pool(2, Settings(spare_workers=1, suspect_ms=1_000.0))
    journal = placed("w1", "w2", "w1", "w1")
    list(pool.look(journal, ["w1", "w2"], 0.0))
    assert pool.shortage(500.0) == "", "it may be on its way"
    list(pool.look(journal, ["w1", "w2"], 900.0))
    assert pool.shortage(3_000.0) == "2 of 3 workers wanted are there, for 3 s; none is idle"
    list(pool.look(journal, ["w1", "w2", "w3"], 3_100.0))
    assert pool.shortage(9_000.0) == ""


def test_one_that_is_idle_is_a_slot_though_others_are_missing() -> None:
    pool = Pool(4, Settings(spare_workers=1, suspect_ms=1_000.0))
    list(pool.look(placed("w1", "w1", "w1", "w1"), ["w1", "w2"], 0.0))
    assert pool.shortage(9_000.0) == ""


def test_a_flow_starts_with_those_that_came_once_no_more_come() -> None:
    pool = Pool(4, SETTINGS)
    wait_ms = START_WAIT * SETTINGS.suspect_ms
    assert pool.starts_later(0, 0.0)
    assert pool.starts_later(0, 10 * wait_ms), "there is nobody to start with"
    assert pool.starts_later(1, 10 * wait_ms)
    assert pool.starts_later(2, 10.9 * wait_ms)
    assert pool.starts_later(2, 11.8 * wait_ms), "from when the latest came"
    assert not pool.starts_later(2, 12 * wait_ms)
    assert not Pool(4, SETTINGS).starts_later(4, 0.0)


def test_one_that_has_not_started_says_whom_it_waits_for() -> None:
    pool = Pool(4, SETTINGS)
    journal = planner.first_journal(chain())
    list(pool.look(journal, ["w1", "w2"], 0.0))
    list(pool.look(journal, ["w1", "w2"], 6_000.0))
    said = "2 of 5 workers wanted are there, for 6 s; the flow waits for more before it starts"
    assert pool.shortage(6_000.0) == said
