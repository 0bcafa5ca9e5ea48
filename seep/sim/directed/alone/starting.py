"""One operator partition by itself: what it starts from, its own checkpoints or those of others."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import Moment, Progress
from seep.model.ids import EVERYTHING, FOREVER, PartitionId
from seep.partition.loader import PATIENCE_MS
from seep.protocol.effects import FenceStore, LoadCheckpoints, NewestVersion
from seep.protocol.journal import LIVE, SHADOW
from seep.protocol.messages import Held, Subscribe, Trim
from seep.sim.directed.alone.desks import done
from seep.sim.directed.alone.worked import A0, MINE, S0, Bench
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightState
from seep.state.checkpoint import Buffered, Checkpoint


def _kept(version: int, epoch: int, rows: int, parent: int = 0, **more: Any) -> Checkpoint:
    """Of one that had taken so many rows."""
    state = LightState(((0, "rows", rows),))
    trimmed = Progress(epoch - 2, 0, 0, 0)
    entries = (Buffered(Progress(epoch, epoch, 10 * epoch, 0), ()),)
    plain = Checkpoint(A0, MINE.generation, EVERYTHING, version, parent, epoch, epoch, 10 * epoch, False, state)
    more = {"buffers": {"a>out": entries}, "trimmed": {"a>out": trimmed}, "counts": {"rows_in": rows}, **more}
    return with_fields(plain, **more)


@scenario
def operator_starts_from_what_it_has_saved() -> None:
    bench = Bench(start=False)
    demand(bench.operator.status().epoch == -1 and not bench.operator.status().accepted, "it says something already")
    fence = bench.answer(FenceStore, error="failed")
    demand((fence.partition, fence.generation, fence.journal_version) == (A0, MINE.generation, 1), f"{fence}")
    demand(not done(bench.desk, LoadCheckpoints), "it is not fenced")
    bench.tick(100.0)
    bench.answer(FenceStore)
    bench.answer(LoadCheckpoints, error="failed")
    bench.tick(200.0)
    bench.answer(LoadCheckpoints, [_kept(3, 10, 4), _kept(5, 12, 9, 3)])
    demand(bench.operator.running and bench.desk.changed and bench.logic.rows == 9, "it does not run")
    demand(len(bench.logic.loaded) == 2, "not all of the chain")
    (asked,) = bench.sent(Subscribe)
    demand((asked.sender, asked.after) == (S0, 12), f"{asked}")
    status = bench.operator.status()
    demand((status.epoch, status.watermark, status.ended, status.idle) == (12, 120, False, False), f"{status}")
    demand((status.durable_version, status.durable_epoch, status.own_checkpoints) == (5, 12, 1), f"{status}")
    demand(status.statistics["rows_in"] == 9 and status.heard == 12, f"{status}")
    demand([e.progress.epoch for e in bench.operator.outputs.buffers["a>out"].entries] == [12], "its buffer")
    bench.accept()
    bench.frame(13, 2)
    demand(bench.logic.moments == [Moment(13, 13, 120, 130, 120)], f"{bench.logic.moments}")
    ended = Bench(start=False)
    ended.answer(FenceStore)
    ended.answer(LoadCheckpoints, [_kept(3, 10, 4, ended=True, idle=True)])
    status = ended.operator.status()
    demand((status.ended, status.idle, status.watermark) == (True, True, FOREVER), f"{status}")
    fenced = Bench(start=False)
    fenced.answer(FenceStore, error="fenced")
    demand(fenced.operator.status().fenced and fenced.desk.changed and not fenced.desk.effects, "it goes on")
    slow = Bench(start=False, copies_bytes=1 << 20)
    slow.answer(FenceStore)
    slow.answer(NewestVersion, 3)
    slow.tick(PATIENCE_MS)
    slow.answer(LoadCheckpoints, [_kept(3, 10, 4)])
    demand(slow.operator.running, "it waits for copies for ever")
    lost = Bench(start=False)
    lost.answer(FenceStore)
    lost.answer(LoadCheckpoints, error="damaged")
    told = "a/0: none of its checkpoints can be used; restore from a savepoint"
    demand(lost.operator.status().failure == told and lost.desk.changed, lost.operator.status().failure)


@scenario
def shadows_start_from_others() -> None:
    """Exactly from that epoch, if they are several or shadows; alone, from an older one if need be."""
    one, two = PartitionId("a", 5), PartitionId("a", 6)
    for bases, role, epochs, starts in (
        ((one,), SHADOW, (10,), True),
        ((one,), SHADOW, (9,), False),
        ((one,), LIVE, (9,), True),
        ((one, two), LIVE, (10, 10), True),
        ((one, two), LIVE, (10, 9), False),
        ((one,), LIVE, (None,), False),
    ):
        base = tuple((who, 3) for who in bases)
        bench = Bench(with_fields(MINE, role=role, base=base, base_epoch=10, first=11), start=False)
        bench.answer(FenceStore)
        bench.answer(LoadCheckpoints, [])
        for who, epoch in zip(bases, epochs, strict=True):
            demand(not bench.operator.running, "before it has all")
            chain = [] if epoch is None else [with_fields(_kept(3, epoch, 4), partition=who)]
            asked = bench.answer(LoadCheckpoints, chain)
            demand((asked.partition, asked.upto, asked.part) == (who, 3, EVERYTHING), f"{asked}")
        demand(bench.operator.running == starts, f"{bases} at {epochs} of one that is {role}")
        told = "a/0: its base, checkpoint 3 of a/5, is gone" if epochs != (10, 9) else "3 of a/6, is gone"
        demand(starts or told in bench.operator.failure, bench.operator.failure)
        if starts:
            status = bench.operator.status()
            demand((status.epoch, status.own_checkpoints) == (epochs[0], 0), f"{status}")
            demand(status.statistics["rows_in"] == 0, "rows of others count as its own")
            demand(len(bench.logic.loaded) == len(bases), "a part of its bases")
            demand(bench.operator.outputs.buffers["a>out"].trimmed.epoch == epochs[0], "it serves what others have")
            demand(bench.operator.base_epoch == epochs[0], f"{bench.operator.base_epoch}")
            demand(bench.operator.saver.version == 7 * 10**9, "numbers of others")
    again = Bench(with_fields(MINE, base=((one, 3),), base_epoch=10), start=False)
    again.answer(FenceStore)
    again.answer(LoadCheckpoints, [])
    again.answer(LoadCheckpoints, error="failed")
    again.tick(100.0)
    again.answer(LoadCheckpoints, error="damaged")
    demand("is gone" in again.operator.failure and again.desk.changed, again.operator.failure)


@scenario
def own_checkpoint_older_than_the_named_base() -> None:
    """An earlier generation started from an older base than the journal names, and has saved that epoch. Wherever we
    get it from, the store's next answer may be that one again: nothing behind it is trimmed before there are two."""
    base = ((PartitionId("a", 5), 3),)
    for from_memory in (False, True):
        bench = Bench(with_fields(MINE, base=base, base_epoch=10, first=11), start=False, copies_bytes=1 << 20)
        bench.answer(FenceStore)
        bench.answer(NewestVersion, 5)
        chain = [_kept(5, 8, 4)]
        if from_memory:
            bench.operator.loader.on_held(Held(A0, A0, MINE.generation, "w2", tuple(chain)))
        else:
            bench.tick(PATIENCE_MS)
            bench.answer(LoadCheckpoints, chain)
        demand(bench.operator.running and bench.operator.epoch == 8, "it does not start from its own")
        bench.accept()
        bench.frame(9)
        bench.tick(3_000.0)
        demand([one.epoch for one in bench.saved()] == [9], "nothing is saved")
        demand({one.upto for one in bench.sent(Trim)} <= {8}, f"from memory: {from_memory}; trimmed past what it has")
