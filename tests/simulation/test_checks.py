"""The checkers themselves: a world that is right passes, and each thing they look for is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from random import Random

import pytest

from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, Generation, KeyRange, PartitionId
from seep.partition.outputs import Cursor
from seep.partition.source import SourcePartition
from seep.protocol.effects import Append, FenceStore, LoadCheckpoints, PutCheckpoint
from seep.protocol.messages import Subscribe, SubscriptionId
from seep.sim.checks import Watch, unrest
from seep.sim.oracle import Violation
from seep.sim.stage import Stage, chain
from seep.sim.store import SimStore

SOURCE, PART = PartitionId("s", 0), PartitionId("a", 0)


@pytest.fixture
def stage() -> Stage:
    """In the middle of its work: each operator has two checkpoints, and something was trimmed."""
    stage = Stage(chain(400), checkpoint_ms=10.0)
    stage.world.run_for(120.0)
    return stage


def forget_too_much(stage: Stage) -> None:
    source = stage.partition("s/0")
    assert isinstance(source, SourcePartition)
    newest = stage.world.store.points(PART)[0].epoch
    source.outputs.buffers["s>a"].trimmed = Progress(newest, 0, BEGINNING, 0)


def truncate_too_much(stage: Stage) -> None:
    log = stage.world.store.logs[SOURCE]
    del log[:-1]


def drop_too_much(stage: Stage) -> None:
    found = stage.world.store.checkpoints[PART]
    child = max(version for version, saved in found.items() if saved.parent)
    del found[found[child].parent]


def drop_a_base(stage: Stage) -> None:
    journal = stage.world.store.journal
    assert journal is not None
    entry = with_fields(journal.entries[PART], partition=PartitionId("a", 9), base=((PART, 7),))
    stage.world.store.journal = with_fields(
        journal, version=journal.version + 1, entries={**journal.entries, entry.partition: entry}
    )


def test_a_journal_that_was_lost_is_not_looked_at_again(stage: Stage) -> None:
    """Seed 61003900: one with a partition more was lost before its answer; another of its version went without it."""
    store, watch = stage.world.store, Watch(stage.world)
    journal = store.journal
    assert journal is not None
    gone = with_fields(journal.entries[PART], partition=PartitionId("a", 9))
    store.journal = with_fields(journal, version=journal.version + 1, entries={**journal.entries, gone.partition: gone})
    watch._read(store.journal)
    store.journal = with_fields(journal, version=journal.version + 1)
    watch()
    assert all(gone not in receivers for _, _, receivers in watch.pairs)


def send_too_much(stage: Stage) -> None:
    cursor = stage.operator("a/0").outputs.cursors["a>out"][PartitionId("out", 0)]
    cursor.opened.extend((epoch, 0) for epoch in range(99))


@pytest.mark.parametrize("wrong", [forget_too_much, truncate_too_much, drop_too_much, drop_a_base, send_too_much])
def test_what_must_hold_at_every_moment_is_noticed(stage: Stage, wrong: Callable[[Stage], None]) -> None:
    watch = Watch(stage.world)
    watch()
    wrong(stage)
    with pytest.raises(Violation):
        watch()


def test_an_older_writer_is_noticed_even_if_nothing_fences_it() -> None:
    stage = Stage()
    store = stage.world.store
    store.perform(FenceStore(1, SOURCE, Generation(0, 0)))
    for number in (2, 1):
        store.perform(Append(1, SOURCE, Generation(1, number), 3 - number, {}))
    with pytest.raises(Violation, match="was accepted after"):
        Watch(stage.world)()


def test_whoever_is_left_behind_is_noticed() -> None:
    stage = Stage()
    watch = stage.world.watch = Watch(stage.world)
    stage.play_through()
    stage.world.run_for(200.0)
    assert unrest(stage.world, watch) == ""
    ghost = PartitionId("out", 8)
    subscription = SubscriptionId(ghost, Generation(1, 1), 1)
    asked = Subscribe(PART, Generation(1, 1), subscription, "a>out", KeyRange(0, 4096), 0, 1, "w1")
    stage.operator("a/0").outputs.cursors["a>out"][ghost] = Cursor(asked, 0)
    assert "serves out/8" in unrest(stage.world, watch)


def test_only_what_nobody_was_told_of_is_lost() -> None:
    generation = Generation(1, 0)
    for seed in range(30):
        store = SimStore()
        store.perform(FenceStore(1, SOURCE, generation), 0.0, 0.5)
        for epoch in range(1, 9):
            store.perform(Append(2, SOURCE, generation, epoch, {}), float(epoch), epoch + 2.5)
        store.lose_tail(8.0, Random(seed))
        kept = [epoch for epoch, _ in store.logs[SOURCE]]
        assert kept == list(range(1, len(kept) + 1))
        assert len(kept) >= 5
        assert [epoch for epoch, _ in store.history[SOURCE]] == kept


@pytest.mark.parametrize(("writer", "counted"), [(1, [3, 2]), (2, [3, 1])])
def test_who_was_read_by_somebody_else_has_not_fallen_back(stage: Stage, writer: int, counted: list[int]) -> None:
    """A newer generation begins from the point before a damaged one; the one that wrote it, and goes on, does not."""
    saved = stage.world.store.points(PART)[0]
    store = SimStore()
    store.perform(FenceStore(1, PART, Generation(1, 1), 0))
    for version in (1, 2):
        point = with_fields(saved, version=version, parent=0, before=None, generation=Generation(1, 1))
        store.perform(PutCheckpoint(1, point))
    assert store.damage(PART)
    store.perform(LoadCheckpoints(1, PART))
    assert [point.version for point in store.points(PART)] == [1]
    point = with_fields(saved, version=3, parent=0, before=None, generation=Generation(1, writer))
    store.perform(FenceStore(1, PART, point.generation, 0))
    store.perform(PutCheckpoint(1, point))
    assert [point.version for point in store.points(PART)] == counted
