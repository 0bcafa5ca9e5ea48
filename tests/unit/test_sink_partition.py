"""What a sink shows outside: not before those who had its keys, and no more ahead of the outside than is allowed."""

from __future__ import annotations

from dataclasses import replace as with_fields

from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.desk import Desk
from seep.partition.sink import UNPUBLISHED_EPOCHS, SinkPartition
from seep.protocol.effects import FenceStore, Publish, Published, ReadLog, StoreReply
from seep.protocol.journal import LIVE, SEALED, Entry, Journal
from seep.sim.light import LightOutlet

GRAPH = Graph(
    {"s": Node("s", "source", None), "out": Node("out", "sink", LightOutlet)}, (Edge("s>out", "s", "out", 0),)
)
LOW, HIGH = EVERYTHING.split(2)


def entry(number: int, key_range: KeyRange, first: int, last: int = FOREVER) -> Entry:
    role = LIVE if last == FOREVER else SEALED
    return Entry(PartitionId("out", number), key_range, first, last, role, Generation(1, number), "w1")


def started(mine: Entry, others: list[Entry], epochs: int) -> SinkPartition:
    """A partition whose log has so many epochs."""
    desk = Desk("w1", Settings())
    desk.journal = Journal(version=1, term=1, entries={e.partition: e for e in (mine, *others)})
    sink = SinkPartition(desk, mine, GRAPH)
    (fence,) = (effect for effect in desk.effects if isinstance(effect, FenceStore))
    desk.answer(StoreReply(fence.token))
    (read,) = (effect for effect in desk.effects if isinstance(effect, ReadLog))
    log = [(mine.first + n, ((n + 1, 0), b"row")) for n in range(epochs)]
    desk.answer(StoreReply(read.token, log))
    return sink


def shown(sink: SinkPartition) -> list[int]:
    return [effect.epoch for effect in sink.desk.effects if isinstance(effect, Publish)]


def test_what_others_have_of_the_same_keys_is_shown_first() -> None:
    before, mine = entry(0, EVERYTHING, 1, 9), entry(1, LOW, 10)
    sink = started(mine, [before, entry(2, HIGH, 10)], 2)
    assert shown(sink) == []
    assert not sink.status().drained
    sink.desk.journal = with_fields(sink.desk.journal, version=2, entries={mine.partition: mine})
    sink.adopt(mine)
    assert shown(sink) == [10, 11]
    sink.adopt(mine)
    assert shown(sink) == [10, 11]


def test_others_of_other_keys_and_later_ones_are_not_waited_for() -> None:
    assert shown(started(entry(1, LOW, 10), [entry(0, HIGH, 1, 9), entry(3, LOW, 20, 30)], 1)) == [10]


def test_nothing_is_taken_while_too_much_is_not_shown() -> None:
    sink = started(entry(0, EVERYTHING, 1), [], UNPUBLISHED_EPOCHS)
    assert not sink._may_take()
    sink.published(Published(sink.entry.partition, 3, count=2))
    assert sink._may_take()
    sink.published(Published(sink.entry.partition, -1, count=1, failure="Misuse: out: too large"))
    assert not sink._may_take()
    assert sink.status().failure == "Misuse: out: too large"
