"""One operator partition, its store and its neighbours in the hands of a directed schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any

from seep.model.care import CAREFREE, Care
from seep.model.epoch import Moment, Progress
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.desk import Desk
from seep.partition.operator import OperatorPartition
from seep.protocol.effects import FenceStore, LoadCheckpoints, PutCheckpoint, Send, StoreReply
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Accepted, Credit, Frame, Subscribe, SubscriptionId, Trim
from seep.sim.directed.alone.desks import done
from seep.sim.directed.registry import demand
from seep.sim.light import LightBatch, LightState
from seep.state.checkpoint import Checkpoint

A0, S0, OUT = PartitionId("a", 0), PartitionId("s", 0), PartitionId("out", 0)
IN, GOES = Edge("s>a", "s", "a", 0), Edge("a>out", "a", "out", 0)
MINE = Entry(A0, EVERYTHING, 1, FOREVER, LIVE, Generation(1, 7), "w1")
SENDER = Entry(S0, EVERYTHING, 1, FOREVER, LIVE, Generation(1, 1), "w2")
TAKER = Entry(OUT, EVERYTHING, 1, FOREVER, LIVE, Generation(1, 2), "w3")
SUBSCRIPTION = SubscriptionId(OUT, TAKER.generation, 1)


class Counts:
    """Remembers how many rows there were, passes them on, and fails on demand."""

    def __init__(self) -> None:
        self.care: Care = CAREFREE
        self.rows = 0
        self.loaded: list[Any] = []
        self.moments: list[Moment] = []
        self.fails: Exception | None = None
        self.fulls: list[bool] = []

    def take(self, moment: Moment, inputs: Sequence[tuple[int, Any]]) -> Mapping[str, Any]:
        if self.fails is not None:
            raise self.fails
        self.moments.append(moment)
        rows = [item for _, batch in inputs for item in batch.items]
        self.rows += len(rows)
        return {"a>out": LightBatch(tuple(rows))} if rows else {}

    def snapshot(self, full: bool) -> LightState:
        self.fulls.append(full)
        return LightState(((0, "rows", self.rows),))

    def mostly_changed(self) -> bool:
        return False

    def load(self, state: LightState) -> None:
        self.loaded.append(state)
        self.rows = state.entries[0][2]

    def statistics(self) -> Mapping[str, int]:
        return {"late": 3, "state_bytes": 32}


class Bench:
    def __init__(self, mine: Entry = MINE, *others: Entry, start: bool = True, **knobs: Any) -> None:
        self.clock_ms = 0.0
        self.logic = Counts()
        nodes = {"s": Node("s", "source", None), "a": Node("a", "operator", lambda: self.logic)}
        self.graph = Graph({**nodes, "out": Node("out", "sink", None)}, (IN, GOES))
        few = {"checkpoint_ms": 1_000.0, "retry_ms": 100.0, "copies_bytes": 0, "report_ms": 10.0}
        self.desk = Desk("w1", Settings(**{**few, **knobs}))
        self.desk.journal = Journal(1, 1, {e.partition: e for e in (mine, SENDER, TAKER, *others)})
        self.operator = OperatorPartition(self.desk, mine, self.graph)
        if start:
            self.answer(FenceStore)
            self.answer(LoadCheckpoints, [])
            self.accept()
            self.desk.changed = False

    def answer(self, kind: Any, value: Any = None, error: str = "") -> Any:
        asked = done(self.desk, kind)
        demand(len(asked) > 0, f"no {kind.__name__}")
        self.desk.effects += asked[1:]
        self.desk.answer(StoreReply(asked[0].token, value, error))
        return asked[0]

    def journal(self, mine: Entry = MINE, *others: Entry, **more: Any) -> None:
        now = self.desk.journal
        entries = {e.partition: e for e in (mine, SENDER, TAKER, *others)}
        self.desk.journal = with_fields(now, version=now.version + 1, entries=entries, **more)
        self.operator.adopt(mine)

    def accept(self) -> None:
        for channel in self.operator.inputs.order:
            assert channel.subscription is not None
            self.operator.handle(Accepted(channel.subscription, S0))

    def frame(self, epoch: int, rows: int = 1, **more: Any) -> None:
        (channel,) = self.operator.inputs.order
        assert channel.subscription is not None
        batch = LightBatch(tuple((n, (n, epoch, 0)) for n in range(rows))) if rows else None
        said = Progress(epoch, **{"now_ms": epoch, "watermark": 10 * epoch, **more})
        self.operator.handle(Frame(channel.subscription, S0, channel.sequence, epoch, batch, said))

    def subscribe(self, after: int = 0) -> None:
        version, mine = self.desk.journal.version, self.operator.entry.generation
        self.operator.handle(Subscribe(A0, mine, SUBSCRIPTION, "a>out", EVERYTHING, after, version, "w3"))

    def trim(self, upto: int) -> None:
        self.operator.handle(Trim(A0, "a>out", OUT, TAKER.generation, upto, self.desk.journal.version))

    def credit(self, taken: int, highest: int = 0, watermark: int = FOREVER) -> None:
        self.operator.handle(Credit(SUBSCRIPTION, A0, "a>out", taken, highest, watermark, 0))

    def tick(self, now_ms: float) -> None:
        self.desk.now_ms, self.desk.wall_ms = now_ms, int(now_ms)
        self.desk.tick()
        self.operator.tick()

    def saved(self) -> list[Checkpoint]:
        """What is being written; it is durable then."""
        found = []
        while asked := done(self.desk, PutCheckpoint):
            found.append(asked[0].checkpoint)
            self.desk.answer(StoreReply(asked[0].token))
        return found

    def sent(self, kind: Any) -> list[Any]:
        return [one.message for one in done(self.desk, Send) if isinstance(one.message, kind)]
