"""What happens off the loop leaves nothing behind."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

from seep.model.ids import Generation, PartitionId
from seep.protocol.effects import Publish
from seep.runtime.background import Background
from seep.runtime.stores.memory import MemoryStore


class Outside:
    repeats = True

    def __init__(self) -> None:
        self.shown = threading.Event()
        self.may_go_on = threading.Event()

    def publish(self, commits: list[tuple[int, bytes | None, bool]]) -> int:
        self.shown.set()
        self.may_go_on.wait(10)
        return commits[-1][0]


def sink(number: int) -> Any:
    entry = SimpleNamespace(partition=PartitionId("out", number), generation=Generation(1, number))
    return SimpleNamespace(entry=entry, outlet=Outside())


def test_sinks_that_have_gone_take_their_threads_along() -> None:
    """With each change of a sink's parallelism come new partitions: those before must not stay for ever."""
    before = threading.active_count()
    background = Background(MemoryStore(), lambda: None)
    here: list[int] = []
    for number in range(20):
        one = sink(number)
        here[:] = [number]
        background.publish(one, Publish(one.entry.partition, 1, b"x", False), partial(here.__contains__, number))
        assert one.outlet.shown.wait(10)
        one.outlet.may_go_on.set()
        background._lanes[one.entry.partition].latest.result(10)  # type: ignore[union-attr]
        background.let_go()
        assert set(background._lanes) == {one.entry.partition}
    assert threading.active_count() <= before + 2
    background.close()


def test_one_that_is_still_showing_something_is_waited_for() -> None:
    background = Background(MemoryStore(), lambda: None)
    one = sink(0)
    background.publish(one, Publish(one.entry.partition, 1, b"x", False), lambda: not one.outlet.shown.is_set())
    assert one.outlet.shown.wait(10)
    background.let_go()
    assert set(background._lanes) == {one.entry.partition}
    one.outlet.may_go_on.set()
    background.close()
    assert [answer.upto for answer in background.answers()] == [1]  # type: ignore[union-attr]
