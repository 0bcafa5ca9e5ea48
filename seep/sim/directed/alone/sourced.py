"""One source partition, its store and its receiver in the hands of a directed schedule."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.model.care import CAREFREE, Care
from seep.model.epoch import Progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node, Reading
from seep.partition.desk import Desk
from seep.partition.source import SourcePartition
from seep.protocol.effects import Append, FenceStore, ReadLog, Send, StoreReply, Truncate
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Credit, Frame, Subscribe, SubscriptionId, Trim
from seep.sim.directed.alone.desks import done
from seep.sim.directed.registry import demand
from seep.sim.light import LightBatch

EDGE = Edge("s>a", "s", "a", 0)
S3, A0 = PartitionId("s", 3), PartitionId("a", 0)
MINE = Entry(S3, EVERYTHING, 5, FOREVER, LIVE, Generation(1, 7), "w1")
TAKER = Entry(A0, EVERYTHING, 1, FOREVER, LIVE, Generation(1, 1), "w2")
SUBSCRIPTION = SubscriptionId(A0, TAKER.generation, 1)


class Rows:
    """Two splits; what each has next is put in by hand: (rows, event time, has it ended), or None."""

    splits = 2
    lateness_us = 5
    idle_ms: int | None = None
    waiting: dict[int, list[tuple[int, int, bool] | None]]

    def __init__(self) -> None:
        self.waiting = {0: [], 1: []}
        self.asked: list[tuple[int, Any, Any, int]] = []
        self.epoch = 0
        self.care: Care = CAREFREE
        self.changed = 0
        """Rows by so many more than before, when they are read again."""

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        self.asked.append((split, position, until, limit_rows))
        start = position or 0
        if until is not None:
            rows, time, ended = until - start + self.changed, 0, False
        else:
            found = self.waiting[split].pop(0) if self.waiting[split] else None
            if found is None:
                return None
            rows, time, ended = found
        batch = LightBatch(tuple((2048 * split, (start + n, self.epoch, 0)) for n in range(rows)))
        outputs = {"s>a": batch} if rows else {}
        return Reading(outputs, start + rows, rows, time, ended, {"errors": 1} if rows else None)


class Bench:
    def __init__(
        self,
        *log: tuple[int, Any],
        mine: Entry = MINE,
        turn: int = 0,
        begins: tuple[int, ...] = (),
        taker: str = "operator",
        **knobs: Any,
    ) -> None:
        self.rows = Rows()
        node = Node("s", "source", lambda: self.rows, turn=turn)
        self.graph = Graph({"s": node, "a": Node("a", taker, None)}, (EDGE,))
        few = {"epoch_ms": 10.0, "retry_ms": 100.0, "epoch_rows": 100, "first_epoch_rows": 100}
        self.desk = Desk("w1", Settings(**{**few, **knobs}))
        self.desk.journal = Journal(1, 1, {S3: mine, A0: TAKER}, begins=begins)
        self.source = SourcePartition(self.desk, mine, self.graph)
        self.answer(FenceStore)
        if log:
            self.answer(ReadLog, list(log))
        elif not mine.base:
            self.answer(ReadLog, [])
        self.desk.changed = False

    def answer(self, kind: Any, value: Any = None, error: str = "") -> Any:
        asked = done(self.desk, kind)
        self.desk.answer(StoreReply(asked[0].token, value, error))
        self.desk.effects += asked[1:]
        return asked[0]

    def journal(self, mine: Entry = MINE, **more: Any) -> None:
        now = self.desk.journal
        self.desk.journal = with_fields(now, version=now.version + 1, entries={**now.entries, S3: mine}, **more)
        self.source.adopt(mine)

    def tick(self, now_ms: float, wall_ms: int | None = None) -> Append | None:
        """What it wants to write down, if anything."""
        self.desk.now_ms, self.desk.wall_ms = now_ms, int(now_ms) if wall_ms is None else wall_ms
        self.desk.tick()
        self.source.tick()
        asked = done(self.desk, Append)
        demand(len(asked) < 2, "two at a time")
        return asked[0] if asked else None

    def cut(self, now_ms: float, wall_ms: int | None = None) -> dict[str, Any]:
        """The record, which is written."""
        asked = self.tick(now_ms, wall_ms)
        demand(asked is not None, f"nothing is cut at {now_ms}")
        assert asked is not None
        self.desk.answer(StoreReply(asked.token))
        record: dict[str, Any] = {**asked.record, "epoch": asked.epoch}
        return record

    def subscribe(self, after: int = 4) -> None:
        version = self.desk.journal.version
        self.source.handle(Subscribe(S3, MINE.generation, SUBSCRIPTION, "s>a", EVERYTHING, after, version, "w2"))

    def credit(self, taken: int, highest: int = 0, watermark: int = BEGINNING) -> None:
        self.source.handle(Credit(SUBSCRIPTION, S3, "s>a", taken, highest, watermark, 0))

    def trim(self, upto: int) -> list[int]:
        version = self.desk.journal.version
        self.source.handle(Trim(S3, "s>a", A0, TAKER.generation, upto, version))
        return [one.below for one in done(self.desk, Truncate)]

    def announced(self) -> list[Progress]:
        sent = [effect.message for effect in done(self.desk, Send)]
        return [one.progress for one in sent if isinstance(one, Frame) and one.progress is not None]
