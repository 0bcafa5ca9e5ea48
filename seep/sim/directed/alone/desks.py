"""A desk, and what is done at it: what directed schedules of single parts of a partition are played on."""

from __future__ import annotations

from typing import Any, TypeVar

from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.desk import Desk
from seep.protocol.effects import Send
from seep.protocol.journal import LIVE, Entry, Journal
from seep.sim.light import LightState
from seep.state.checkpoint import Checkpoint

A0, S0, S1 = PartitionId("a", 0), PartitionId("s", 0), PartitionId("s", 1)
MINE = Generation(2, 3)
GRAPH = Graph(
    {"s": Node("s", "source", None), "a": Node("a", "operator", None)},
    (Edge("s>a", "s", "a", 0),),
)
Found = TypeVar("Found")


def entry_of(who: PartitionId, worker: str, generation: Generation = MINE) -> Entry:
    return Entry(who, EVERYTHING, 1, FOREVER, LIVE, generation, worker)


def desk_of(worker: str = "w1", **knobs: Any) -> Desk:
    desk = Desk(worker, Settings(**{"retry_ms": 100.0, "checkpoint_ms": 1_000.0, **knobs}))
    entries = {A0: entry_of(A0, "w1"), S0: entry_of(S0, "w2"), S1: entry_of(S1, "w3")}
    desk.journal = Journal(1, 2, entries, next_generation=5)
    return desk


def checkpoint_of(version: int, epoch: int, parent: int = 0, rows: int = 2) -> Checkpoint:
    state = LightState(tuple((bucket, bucket, 1) for bucket in range(rows)))
    return Checkpoint(A0, MINE, EVERYTHING, version, parent, epoch, 0, 0, False, state)


def done(desk: Desk, kind: type[Found]) -> list[Found]:
    """The effects of this kind, or the messages; they are gone then."""
    found: list[Found] = []
    left = []
    for effect in desk.effects:
        what = effect.message if isinstance(effect, Send) and kind is not Send else effect
        if isinstance(what, kind):
            found.append(what)
        else:
            left.append(effect)
    desk.effects = left
    return found


def sent_to(desk: Desk) -> list[str]:
    return [effect.to for effect in desk.effects if isinstance(effect, Send)]
