"""Every change of the journal keeps the promise: open lives tile, and each epoch has one owner for each bucket."""

from __future__ import annotations

from dataclasses import replace as with_fields

from seep.control import planner
from seep.control.leftovers import leftovers
from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.protocol.effects import Truncate
from seep.protocol.journal import LIVE, SEALED, SHADOW, Journal
from seep.sim.oracle import check_journal
from seep.sim.stage import chain

GRAPH = chain(starts={"a": 2})
A0, A1 = PartitionId("a", 0), PartitionId("a", 1)


def first() -> Journal:
    return planner.first_journal(GRAPH)


def shadows(journal: Journal, old: tuple[PartitionId, ...], ranges: tuple[KeyRange, ...], *epochs: int) -> Journal:
    journal = planner.begin(journal, "a", old, ranges, 0, handover=False)
    fixed = {p: (3, epoch) for p, epoch in zip(old, epochs, strict=True)}
    return planner.start_shadows(journal, journal.replaces[0], fixed)


def test_the_first_journal_tiles() -> None:
    check_journal(GRAPH, first())
    assert [e.key_range for e in first().live("a")] == list(EVERYTHING.split(2))


def test_a_split_step_by_step() -> None:
    whole = first().entries[A0].key_range
    journal = shadows(first(), (A0,), whole.split(2), 20)
    check_journal(GRAPH, journal)
    news = journal.replaces[0].new
    assert [journal.entries[p].role for p in news] == [SHADOW, SHADOW]
    assert {journal.entries[p].base for p in news} == {((A0, 3),)}
    journal = planner.commit(journal, journal.replaces[0], 30)
    check_journal(GRAPH, journal)
    assert (journal.entries[A0].role, journal.entries[A0].last) == (SEALED, 29)
    assert {(journal.entries[p].first, journal.entries[p].role) for p in news} == {(30, LIVE)}
    assert journal.replaces == ()
    check_journal(GRAPH, planner.retire(journal, A0))


def test_a_merge_starts_from_both() -> None:
    journal = shadows(first(), (A0, A1), (EVERYTHING,), 20, 20)
    (new,) = journal.replaces[0].new
    assert journal.entries[new].base == ((A0, 3), (A1, 3))
    check_journal(GRAPH, planner.commit(journal, journal.replaces[0], 21))


def test_an_aborted_replace_leaves_no_trace_but_used_numbers() -> None:
    before = first()
    journal = shadows(before, (A0,), before.entries[A0].key_range.split(2), 20)
    journal = planner.abort(journal, journal.replaces[0])
    assert (journal.entries, journal.replaces) == (before.entries, ())
    assert journal.next_number["a"] == 4
    assert journal.next_generation == before.next_generation, "nobody was placed"


def test_a_hand_over_begins_where_the_old_ones_ended() -> None:
    source = PartitionId("s", 0)
    journal = planner.begin(first(), "s", (source,), EVERYTHING.split(2), 0, handover=True)
    journal = planner.decide_epoch(journal, journal.replaces[0], 12)
    journal = planner.commit_handover(journal, journal.replaces[0])
    check_journal(GRAPH, journal)
    assert journal.entries[source].last == 12
    assert {e.first for e in journal.live("s")} == {13}


def test_a_restart_is_a_later_generation_each_time() -> None:
    once = planner.restart(first(), A0, "w2")
    twice = planner.restart(once, A0, "w3")
    generations = [j.entries[A0].generation for j in (first(), once, twice)]
    assert generations == sorted(set(generations))
    assert twice.entries[A0].worker == "w3"


def test_recovery_in_parts_leaves_a_ghost_that_serves_the_buffer() -> None:
    journal = planner.recover_in_parts(first(), A0, 5, 40, first().entries[A0].key_range.split(3))
    check_journal(GRAPH, journal)
    assert (journal.entries[A0].role, journal.entries[A0].last) == (SEALED, 40)
    assert len(journal.live("a")) == 4


def test_recovery_in_parts_never_begins_before_the_dead_ones_life() -> None:
    begun = with_fields(first().entries[A0], first=50)
    journal = with_fields(first(), entries={**first().entries, A0: begun})
    journal = planner.recover_in_parts(journal, A0, 5, 40, journal.entries[A0].key_range.split(2))
    assert A0 not in journal.entries, "it never owned an epoch: there is nothing to serve"
    assert {e.first for e in journal.live("a") if e.key_range.low < 2048} == {50}


def test_recovery_in_parts_aborts_what_was_under_way() -> None:
    journal = shadows(first(), (A1,), first().entries[A1].key_range.split(2), 20)
    journal = planner.recover_in_parts(journal, A0, 5, 40, journal.entries[A0].key_range.split(2))
    assert journal.replaces == ()
    assert not [e for e in journal.entries.values() if e.role == SHADOW]
    check_journal(GRAPH, journal)


def test_what_is_gone_is_dropped_unless_somebody_starts_from_it() -> None:
    source = PartitionId("s", 0)
    before = planner.begin(first(), "s", (source,), EVERYTHING.split(2), 0, handover=True)
    before = planner.decide_epoch(before, before.replaces[0], 12)
    committed = planner.commit_handover(before, before.replaces[0])
    retired = planner.retire(committed, source)
    assert list(leftovers(GRAPH, committed, retired)) == [], "the new ones read where it ended"
    freed = retired
    for new in retired.live("s"):
        freed = planner.free_base(freed, new.partition)
    assert list(leftovers(GRAPH, retired, freed)) == [Truncate(source, Generation(1, FOREVER), FOREVER)]
