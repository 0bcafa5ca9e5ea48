"""When checkpoints are made, how they are chained and written, which are durable and which are dropped."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.partition.saver import LONG_CHAIN, VERSIONS, Saver
from seep.protocol.effects import DropCheckpoints, PutCheckpoint, StoreReply
from seep.sim.directed.alone.desks import A0, MINE, checkpoint_of, desk_of, done, entry_of
from seep.sim.directed.registry import demand, scenario
from seep.state.checkpoint import Checkpoint, Point

FIRST = MINE.number * VERSIONS


class _Saving:
    def __init__(self, **knobs: Any) -> None:
        self.desk = desk_of(**knobs)
        self.durable: list[int] = []
        self.saver = Saver(self.desk, entry_of(A0, "w1"), lambda saved: self.durable.append(saved.epoch))

    def save(self, epoch: int, full: bool | None = None, rows: int = 2) -> Checkpoint:
        full = self.saver.next_is_full() if full is None else full
        return self.saver.add(lambda version, parent: checkpoint_of(version, epoch, parent, rows), full)

    def answer(self, error: str = "", value: Any = None) -> Checkpoint:
        (put,) = done(self.desk, PutCheckpoint)
        self.desk.answer(StoreReply(put.token, value, error))
        return put.checkpoint


@scenario
def checkpoints_are_chained_and_written_one_by_one() -> None:
    bench = _Saving(increments=2)
    saver, made = bench.saver, []
    demand(saver.next_is_full() and not saver.busy, "it does not begin with a full one")
    for epoch in range(10, 16):
        made.append(bench.save(epoch))
        demand(saver.underway(epoch) and not saver.underway(epoch - 1), f"epoch {epoch} is not under way")
        bench.answer()
        demand(not saver.busy and not saver.underway(epoch), f"epoch {epoch} is under way still")
    versions = [FIRST + number for number in range(1, 7)]
    demand([one.version for one in made] == versions, f"{[one.version for one in made]}")
    parents = [0, versions[0], versions[1], 0, versions[3], versions[4]]
    demand([one.parent for one in made] == parents, f"{[one.parent for one in made]}")
    points = [(point.version, point.epoch, len(point.chain)) for point in saver.durable]
    demand(points == [(v, 10 + i, 1 + i % 3) for i, v in enumerate(versions)], f"{points}")
    demand(saver.durable[2].chain == tuple(versions[:3]) and bench.durable == list(range(10, 16)), "of the third")
    demand(saver.fallback_epoch(7) == 14 and saver.wrote(15) and not saver.wrote(9), "what is durable")
    demand(saver.at(13) == (versions[3], 13) and saver.at(9) is None, "by its epoch")
    two = _Saving()
    two.save(10)
    two.save(11)
    demand(two.saver.underway(10) and two.saver.underway(11) and two.saver.busy, "both are under way")
    demand(two.answer().epoch == 10 and two.saver.busy, "the second is written next")
    demand(two.saver.fallback_epoch(7) == 7, "one is not enough")
    demand(two.answer().epoch == 11 and two.saver.fallback_epoch(7) == 10, "two are")
    folded = _Saving()
    for epoch in (10, 11, 12):
        folded.save(epoch)
        folded.answer(value=FIRST + 2 if epoch == 12 else None)
    demand(folded.saver.durable[-1].chain == (FIRST + 2, FIRST + 3), f"{folded.saver.durable[-1]}")


@scenario
def failed_write_ends_a_chain_and_a_fenced_one_all() -> None:
    bench = _Saving()
    bench.save(10)
    bench.answer()
    bench.save(11)
    bench.save(12)
    bench.answer("failed")
    demand(not bench.saver.busy and bench.saver.next_is_full(), "it goes on with what builds on nothing")
    demand(bench.desk.counts == {"checkpoints": 1, "checkpoints_failed": 1}, f"{bench.desk.counts}")
    bench.desk.changed = False
    demand(bench.save(13).parent == 0, "the next one is no full one")
    bench.answer("fenced")
    demand(bench.saver.fenced and bench.desk.changed and not bench.saver.busy, "it goes on")
    bench.save(14)
    demand(not done(bench.desk, PutCheckpoint), "one that is fenced writes")
    demand(bench.durable == [10], f"{bench.durable}")


@scenario
def what_was_restored_is_gone_on_with() -> None:
    bench = _Saving(increments=4)
    saver = bench.saver
    before = Point(FIRST - 9, 80, (FIRST - 9,))
    chain = [checkpoint_of(FIRST - 8, 85, rows=10), with_fields(checkpoint_of(FIRST - 7, 90, FIRST - 8), before=before)]
    saver.restored(chain)
    demand(saver.durable == [before, Point(FIRST - 7, 90, (FIRST - 8, FIRST - 7))], f"{saver.durable}")
    demand(saver.fallback_epoch(7) == 80 and saver.at(80) is None and saver.at(90) == (FIRST - 7, 90), "by name only")
    demand(not saver.wrote(90), "another generation wrote it")
    demand(not saver.next_is_full() and saver.prefers_full(640) and not saver.prefers_full(641), "what it weighs")
    made = bench.save(95)
    demand((made.version, made.parent) == (FIRST + 1, FIRST - 7), f"{made}")
    bench.answer()
    demand(saver.durable[-1].chain == (FIRST - 8, FIRST - 7, FIRST + 1) and saver.wrote(95), f"{saver.durable}")
    for epoch in range(96, 96 + LONG_CHAIN - 3):
        demand(not saver.prefers_full(10**9), f"before epoch {epoch}")
        bench.save(epoch)
        bench.answer()
    demand(saver.prefers_full(10**9), "a long chain")
    alone = _Saving()
    alone.saver.restored(chain[:1])
    demand(len(alone.saver.durable) == 1 and alone.saver.at(85) == (FIRST - 8, 85), "of one without a point before it")
    full = _Saving(increments=1)
    full.saver.restored(chain)
    demand(full.saver.next_is_full(), "two are more than one increment")


@scenario
def checkpoints_are_made_in_time() -> None:
    bench = _Saving()
    saver, desk = bench.saver, bench.desk
    for now_ms, due in ((999.0, False), (1_000.0, True)):
        desk.now_ms = now_ms
        demand(saver.due(10**9) == due, f"at {now_ms}")
    for age_ms, begins in ((300.0, 700.0), (5_000.0, 0.0), (-50.0, 1_000.0)):
        desk.now_ms = 5_000.0
        saver.began(age_ms)
        demand(saver.last_ms == 4_000.0 + begins, f"{saver.last_ms} by {age_ms}")
    saver.began(1_000.0)
    for now_ms, behind_ms, due in (
        (5_000.0, 250.0, True),
        (5_000.0, 251.0, False),
        (5_999.0, 251.0, False),
        (6_000.0, 251.0, True),
    ):
        desk.now_ms = now_ms
        demand(saver.due(behind_ms) == due, f"at {now_ms}, {behind_ms} behind")
    desk.now_ms = 7_000.0
    bench.save(10)
    demand(not saver.due(0.0) and saver.last_ms == 7_000.0, "at once again")
    desk.now_ms = 8_000.0
    demand(saver.due(10**9), "it has caught up")
    demand(saver.lacks(1), "there is none yet")
    bench.answer()
    demand(saver.lacks(10), "the newest two are not both of it")
    bench.save(10)
    bench.answer()
    demand(not saver.lacks(10) and saver.lacks(11), "they are")
    demand(saver.prefers_full(128) and not saver.prefers_full(129), "two rows are 64 bytes")


@scenario
def newest_two_and_what_is_pinned_are_kept() -> None:
    def dropped(count: int, pinned: set[int], increments: int = 0) -> tuple[list[int], list[DropCheckpoints]]:
        bench = _Saving(increments=increments)
        for epoch in range(1, count + 1):
            bench.save(epoch)
            bench.answer()
        bench.saver.drop_old({FIRST + number for number in pinned})
        drops = done(bench.desk, DropCheckpoints)
        return [point.version - FIRST for point in bench.saver.durable], drops

    for count, pinned, increments, left, kept in (
        (2, set(), 0, [1, 2], None),
        (4, set(), 0, [3, 4], [3]),
        (5, {2}, 0, [1, 2, 4, 5], [1, 2, 4]),
        (6, {3}, 0, [2, 3, 5, 6], [2, 3, 5]),
        (4, {9}, 0, [1, 2, 3, 4], None),
        (5, set(), 9, [4, 5], [1, 2, 3, 4]),
        (6, set(), 2, [5, 6], [4, 5]),
        (6, {2}, 2, [1, 2, 5, 6], [1, 2, 4, 5]),
    ):
        found, drops = dropped(count, pinned, increments)
        demand(found == left, f"of {count} with {pinned} pinned: {found}")
        wanted = [] if kept is None else [DropCheckpoints(A0, MINE, FIRST + left[-1], tuple(FIRST + v for v in kept))]
        demand(drops == wanted, f"of {count} with {pinned} pinned: {drops}")
