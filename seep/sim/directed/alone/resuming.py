"""One source partition by itself: how it goes on from its log, or from those of others, and when its store fails."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.epoch import UNKNOWN, Progress
from seep.model.ids import BEGINNING, FOREVER, PartitionId
from seep.model.settings import Settings
from seep.partition.desk import Desk
from seep.partition.source import SourcePartition
from seep.protocol.effects import Append, FenceStore, ReadLog, StoreReply
from seep.protocol.journal import Journal
from seep.sim.directed.alone.desks import done
from seep.sim.directed.alone.sourced import A0, MINE, S3, TAKER, Bench, Rows
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightBatch


def _known(end: int, time: int = 50, **more: Any) -> list[Any]:
    return [more.get("start", end), end, time, more.get("ended", False), 900, {"read": end}]


def _record(after: int, **more: Any) -> dict[str, Any]:
    plain = {"after": after, "base": after, "now": 900, "watermark": 45, "ended": False, "idle": False, "rows": 0}
    return {**plain, "edges": {}, "splits": {"0": _known(3), "1": _known(4)}, **more}


@scenario
def source_goes_on_where_its_log_ends() -> None:
    batch = LightBatch(tuple((0, (n, 8, 0)) for n in range(3)))
    shape = (batch.digest(), 3, 96)
    moved = _record(6, base=6, rows=3, edges={"s>a": shape}, splits={"0": _known(3, start=0), "1": _known(4)})
    log = ((6, _record(5)), (8, moved), (9, _record(8, base=8, watermark=47)))

    def begun() -> Bench:
        bench = Bench(*log)
        status = bench.source.status()
        demand((status.epoch, status.published, status.watermark, status.own_checkpoints) == (9, 8, 47, 2), f"{status}")
        demand(status.statistics["rows_out"] == 3 and bench.source.running, f"{status}")
        demand(bench.source.outputs.buffers["s>a"].trimmed == Progress(5, 0, BEGINNING, UNKNOWN), "what is gone")
        demand(not bench.rows.asked, "rows are read that nobody wants")
        return bench

    bench = begun()
    bench.subscribe(after=5)
    demand([said.epoch for said in bench.announced()] == [5, 6, 8, 9], "what it announced is forgotten")
    demand(bench.rows.asked == [(0, 0, 3, FOREVER)] and bench.rows.epoch == 8, f"{bench.rows.asked}")
    later = bench.cut(0.0, 800)
    demand((later["epoch"], later["after"], later["base"], later["now"]) == (10, 9, 8, 900), f"{later}")
    demand(later["splits"]["0"] == [3, 3, 50, False, 900, {"read": 3}], f"{later['splits']}")
    differs = begun()
    differs.rows.changed = 1
    differs.subscribe(after=5)
    told = "s/3: epoch 8 reads differently than it did before"
    demand(told in differs.source.status().failure and differs.desk.changed, differs.source.status().failure)
    demand(differs.tick(0.0) is None, "it goes on")
    gone = begun()
    gone.rows.read = lambda *given: None  # type: ignore[method-assign]
    gone.subscribe(after=5)
    demand("s/3: split 0 no longer has epoch 8" in gone.source.status().failure, gone.source.status().failure)
    refused = begun()
    refused.subscribe(after=4)
    demand(not refused.announced(), "what is gone is served as if nothing had been there")
    ended = Bench((6, _record(5, ended=True, watermark=FOREVER, splits={"0": _known(3, ended=True)})))
    demand(ended.source.status().ended and ended.tick(0.0) is None, "it has ended")
    old = Bench((6, {name: value for name, value in _record(4).items() if name != "base"}))
    demand(old.source.status().published == 4, "a record of earlier days")
    # Time in which nobody has read is no silence.
    fresh = Bench((6, _record(5, splits={"0": [None, None, BEGINNING, False, 880, {}]})))
    record = fresh.cut(0.0, 5_000)
    demand(record["splits"]["0"][4] == 4_980, f"one that was read in vain: {record}")
    slept = Bench((6, _record(5)))
    slept.rows.idle_ms = 50
    record = slept.cut(0.0, 5_000)
    demand((record["idle"], record["splits"]["0"][4]) == (False, 5_000), f"{record}")
    record = slept.cut(10.0, 5_060)
    demand((record["idle"], record["splits"]["0"][4]) == (True, 5_000), f"{record}")


@scenario
def source_begins_where_others_end() -> None:
    """Its first epoch is the one before its life: what it takes over, and nothing else."""
    mine = with_fields(MINE, base=((PartitionId("s", 1), 0), (PartitionId("s", 2), 0)), first=20)
    bench = Bench(mine=mine)
    demand(bench.answer(ReadLog, []).partition == S3, "its own log first")
    logs = {
        1: [(18, _record(17)), (19, _record(18, now=950, splits={"0": _known(7, 60)})), (20, _record(19, now=999))],
        2: [(19, _record(18, now=940, splits={"1": _known(9, 80)}))],
    }
    demand(bench.answer(ReadLog, error="failed").partition.number == 1, "in their order")
    demand(bench.answer(ReadLog, logs[2]).partition.number == 2, "in their order")
    demand(not done(bench.desk, Append) and not bench.source.running, "it begins with one of two")
    bench.desk.now_ms = 100.0
    bench.desk.tick()
    bench.answer(ReadLog, logs[1])
    (asked,) = done(bench.desk, Append)
    record = asked.record
    demand((asked.epoch, record["now"], record["rows"], record["ended"]) == (19, 950, 0, False), f"{asked}")
    demand((record["watermark"], record["after"]) == (55, 19), f"{record}")
    demand(
        record["splits"] == {"0": [7, 7, 60, False, 900, {"read": 7}], "1": [9, 9, 80, False, 900, {"read": 9}]},
        f"{record}",
    )
    demand(not bench.source.status().accepted, "before it is written")
    bench.desk.answer(StoreReply(asked.token))
    status = bench.source.status()
    demand(bench.source.running and status.epoch == 19 and status.accepted and bench.desk.changed, f"{status}")
    trimmed = bench.source.outputs.buffers["s>a"].trimmed
    demand((trimmed.epoch, trimmed.watermark, trimmed.now_ms) == (19, 55, 950), f"{trimmed}")
    demand(bench.cut(100.0, 960)["epoch"] == 20, "its first epoch")
    lost = Bench(mine=with_fields(mine, base=mine.base[:1]))
    lost.answer(ReadLog, [])
    lost.answer(ReadLog, [(20, _record(19))])
    demand("s/3: the epoch log of s/1 is gone" in lost.source.status().failure, lost.source.status().failure)
    demand(lost.desk.changed and not done(lost.desk, Append), "it begins from nothing")


@scenario
def writes_that_fail_are_tried_again_and_fenced_ones_are_not() -> None:
    bench = Bench()
    bench.subscribe()
    bench.announced()
    asked = bench.tick(0.0)
    assert asked is not None
    bench.desk.answer(StoreReply(asked.token, error="failed"))
    demand(bench.tick(99.0) is None and not bench.announced(), "at once again")
    again = bench.tick(100.0)
    assert again is not None
    demand((again.epoch, again.record) == (asked.epoch, asked.record), "it is cut anew")
    bench.desk.answer(StoreReply(again.token, error="exists"))
    demand([said.epoch for said in bench.announced()] == [5], "our own earlier try")
    last = bench.tick(110.0)
    assert last is not None
    bench.desk.changed = False
    bench.desk.answer(StoreReply(last.token, error="fenced"))
    demand(bench.source.status().fenced and bench.desk.changed and not bench.announced(), "it is announced")
    demand(bench.desk.counts == {"refused_fenced": 1} and bench.tick(500.0) is None, f"{bench.desk.counts}")
    for error, said in (("fenced", "fenced"), ("damaged", "damaged")):
        desk = Desk("w1", Settings(retry_ms=100.0))
        desk.journal = Journal(3, 1, {S3: MINE, A0: TAKER})
        begun = Bench.__new__(Bench)
        begun.desk, begun.rows = desk, Rows()
        source = begun.source = SourcePartition(desk, MINE, bench.graph)
        (fence,) = done(desk, FenceStore)
        demand((fence.partition, fence.generation, fence.journal_version) == (S3, MINE.generation, 3), f"{fence}")
        desk.effects.append(fence)
        begun.answer(FenceStore, error="failed" if said == "damaged" else error)
        if said == "damaged":
            desk.now_ms = 100.0
            desk.tick()
            begun.answer(FenceStore)
            begun.answer(ReadLog, error="failed")
            desk.now_ms = 200.0
            desk.tick()
            begun.answer(ReadLog, error=error)
        status = source.status()
        told = "s/3: its epoch log is damaged; restore from a savepoint"
        demand((status.fenced, status.failure) == (said == "fenced", told if said == "damaged" else ""), f"{status}")
        demand(desk.changed and not desk.effects and not status.accepted and status.epoch == -1, f"{status}")
