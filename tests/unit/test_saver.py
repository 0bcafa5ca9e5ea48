"""Checkpoints: one write at a time, chains that start with a full one, the newest two kept."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest

from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.desk import Desk
from seep.partition.saver import VERSIONS, Saver
from seep.protocol.effects import DropCheckpoints, PutCheckpoint, StoreReply
from seep.protocol.journal import LIVE, Entry
from seep.sim.light import LightState
from seep.state.checkpoint import Checkpoint, Point

ME = Entry(PartitionId("a", 0), EVERYTHING, 1, FOREVER, LIVE, Generation(1, 0), "w1")


class Bench:
    """A saver, and the store at the other end of its desk."""

    def __init__(self, increments: int = 2) -> None:
        self.desk = Desk("w1", Settings(increments=increments))
        self.durable = 0
        self.saver = Saver(self.desk, ME, self._on_durable)

    def _on_durable(self, _: Checkpoint) -> None:
        self.durable += 1

    def save(self, epoch: int) -> Checkpoint:
        full = self.saver.next_is_full()
        return self.saver.add(lambda version, parent: checkpoint(version, parent, epoch), full)

    def puts(self) -> list[PutCheckpoint]:
        found = [e for e in self.desk.effects if isinstance(e, PutCheckpoint)]
        self.desk.effects = [e for e in self.desk.effects if not isinstance(e, PutCheckpoint)]
        return found

    def answer(self, error: str = "") -> None:
        (put,) = self.puts()
        self.desk.answer(StoreReply(put.token, error=error))

    def saved(self, *epochs: int) -> None:
        for epoch in epochs:
            self.save(epoch)
            self.answer()


def checkpoint(version: int, parent: int, epoch: int) -> Checkpoint:
    return Checkpoint(ME.partition, ME.generation, EVERYTHING, version, parent, epoch, 0, 0, False, None)


def test_a_full_one_then_increments_then_a_full_one() -> None:
    bench = Bench(increments=2)
    parents: list[int] = []
    for epoch in range(1, 6):
        parents.append(bench.save(epoch).parent)
        bench.answer()
    assert parents == [0, 1, 2, 0, 4]


def test_one_write_at_a_time_and_the_next_as_soon_as_it_is_durable() -> None:
    bench = Bench()
    bench.save(1)
    bench.save(2)
    assert bench.saver.underway(2)
    (first,) = bench.puts()
    bench.desk.answer(StoreReply(first.token))
    assert [put.checkpoint.epoch for put in bench.puts()] == [2]
    assert bench.durable == 1
    assert bench.saver.busy


def test_a_failed_write_ends_the_chain() -> None:
    bench = Bench()
    bench.saved(1)
    bench.save(2)
    bench.save(3)
    bench.answer("failed")
    assert not bench.saver.busy
    assert bench.saver.next_is_full()
    assert (bench.save(4).parent, bench.durable) == (0, 1)


def test_a_fenced_write_ends_everything() -> None:
    bench = Bench()
    bench.save(1)
    bench.save(2)
    bench.answer("fenced")
    assert bench.saver.fenced
    assert bench.puts() == []
    assert bench.durable == 0


def test_upstream_is_kept_for_the_second_newest_and_before_that_for_the_base() -> None:
    bench = Bench()
    assert bench.saver.fallback_epoch(7) == 7
    bench.saved(10)
    assert bench.saver.fallback_epoch(7) == 7
    bench.saved(20, 30)
    assert bench.saver.fallback_epoch(7) == 20


@pytest.mark.parametrize(
    ("pinned", "keep"),
    [
        (set[int](), (4,)),
        ({1}, (1, 4)),
        ({3}, (2, 3, 4)),
    ],
    ids=["nobody starts from an old one", "a pending Replace starts from the first", "from one that has one before it"],
)
def test_what_is_dropped(pinned: set[int], keep: tuple[int, ...]) -> None:
    bench = Bench(increments=0)
    bench.saved(10, 20, 30, 40, 50)
    bench.saver.drop_old(pinned)
    (drop,) = (e for e in bench.desk.effects if isinstance(e, DropCheckpoints))
    assert (drop.below, drop.keep) == (5, keep)
    assert [point.version for point in bench.saver.durable] == [*keep, 5]


def test_what_kept_ones_build_on_is_kept() -> None:
    bench = Bench(increments=8)
    bench.saved(10, 20, 30, 40)
    bench.saver.drop_old(set())
    (drop,) = (e for e in bench.desk.effects if isinstance(e, DropCheckpoints))
    assert (drop.below, drop.keep) == (4, (1, 2, 3))


def test_a_pin_of_a_generation_before_us_stops_all_dropping() -> None:
    bench = Bench(increments=0)
    bench.saved(10, 20, 30)
    bench.saver.drop_old({77})
    assert not any(isinstance(e, DropCheckpoints) for e in bench.desk.effects)


def test_what_the_store_folded_need_not_be_kept() -> None:
    bench = Bench(increments=8)
    bench.saved(10, 20)
    bench.save(30)
    (put,) = bench.puts()
    bench.desk.answer(StoreReply(put.token, value=put.checkpoint.version))
    bench.saved(40)
    assert [point.chain for point in bench.saver.durable] == [(1,), (1, 2), (3,), (3, 4)]


def test_the_one_of_exactly_an_epoch() -> None:
    bench = Bench()
    bench.saved(10, 20)
    assert bench.saver.at(10) == (1, 10)
    assert bench.saver.at(15) is None


def test_a_restored_one_goes_on_with_its_chain_under_numbers_of_its_own_generation() -> None:
    bench = Bench(increments=4)
    later = with_fields(ME, generation=Generation(2, 7))
    bench.saver = Saver(bench.desk, later, bench._on_durable)
    newest = with_fields(checkpoint(2, 1, 20), before=Point(1, 10, (1,)))
    bench.saver.restored([checkpoint(1, 0, 10), newest])
    assert bench.saver.fallback_epoch(0) == 10
    assert not bench.saver.next_is_full()
    saved = bench.save(30)
    assert (saved.parent, saved.version) == (2, 7 * VERSIONS + 1)


def test_of_a_restored_state_it_is_known_how_large_it_is() -> None:
    bench = Bench(increments=4)
    state = LightState(((0, "key", 1),))
    assert not bench.saver.prefers_full(again_bytes=1)
    bench.saver.restored([with_fields(checkpoint(1, 0, 10), state=state)])
    assert bench.saver.prefers_full(again_bytes=2 * state.size_bytes)
    assert not bench.saver.prefers_full(again_bytes=2 * state.size_bytes + 1)
    bench.saved(20, 30, 40)
    assert bench.saver.prefers_full(again_bytes=2 * state.size_bytes + 1)


def test_there_are_two_checkpoints_even_of_one_epoch() -> None:
    """At its limit a sender cuts no later epoch before it may let go of the ones before this."""
    bench = Bench()
    assert bench.saver.lacks(10)
    bench.saved(10)
    assert bench.saver.lacks(10)
    bench.saved(10)
    assert not bench.saver.lacks(10)
    assert bench.saver.fallback_epoch(0) == 10
    bench.saved(11)
    assert bench.saver.lacks(11)


def test_before_the_first_one_there_is_no_point() -> None:
    """Upstream keeps all that the base would need until there are two."""
    bench = Bench(increments=4)
    bench.saver.restored([checkpoint(2, 0, 20)])
    assert bench.saver.fallback_epoch(7) == 7
    bench.saved(30)
    assert bench.saver.fallback_epoch(7) == 20


def test_nothing_starts_from_a_checkpoint_that_is_known_by_name_only() -> None:
    """After one was damaged the one before may be gone: whoever wrote the damaged one had dropped it."""
    bench = Bench()
    before = Point(1, 10, (1,))
    bench.saver.restored([with_fields(checkpoint(2, 0, 20), before=before)])
    assert bench.saver.fallback_epoch(0) == 10, "upstream waits for it all the same"
    assert bench.saver.at(10) is None
    assert bench.saver.at(20) == (2, 20)
