"""A store that is down is asked again, and not besieged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as with_fields

import pytest

from seep.control import planner
from seep.control.controller import Controller
from seep.model.settings import Settings
from seep.partition.desk import Desk
from seep.partition.worker import Worker
from seep.protocol.effects import Append, FenceStore, ReadJournal, ReadLog, StoreReply, SwapJournal
from seep.protocol.messages import Plan
from seep.sim.stage import chain

SETTINGS = Settings(retry_ms=100.0)
SECOND = range(0, 1_000, 5)


def asked_in_a_second(failing: type) -> Counter[type]:
    """How often a source and a sink made each kind of call while one kind fails at once, every time."""
    graph = chain()
    journal = planner.first_journal(graph)
    for partition in journal.entries:
        if graph.nodes[partition.operator].kind != "operator":
            journal = planner.restart(journal, partition, "w1")
    worker, asked = Worker("w1", graph, SETTINGS), Counter[type]()
    values = {ReadLog: [], FenceStore: None, Append: None}
    waiting = list(worker.handle(Plan(with_fields(journal, version=2)), 0.0))
    for now_ms in SECOND:
        while waiting:
            effect = waiting.pop()
            if isinstance(effect, FenceStore | ReadLog | Append):
                asked[type(effect)] += 1
                error = "failed" if isinstance(effect, failing) else ""
                waiting += worker.handle(StoreReply(effect.token, values[type(effect)], error), now_ms)
        waiting += worker.tick(now_ms, now_ms)
    return asked


@pytest.mark.parametrize("failing", [FenceStore, ReadLog, Append])
def test_a_failing_store_is_asked_again_at_the_pace_of_retries(failing: type) -> None:
    assert 5 < asked_in_a_second(failing)[failing] <= 22


def test_who_is_gone_asks_no_more() -> None:
    desk, owner = Desk("w1", SETTINGS), object()
    desk.call_again(owner, lambda token: ReadJournal(token), lambda reply: None)
    desk.now_ms = 99.0
    desk.tick()
    assert desk.effects == []
    desk.now_ms = 101.0
    desk.tick()
    desk.tick()
    assert desk.effects == [ReadJournal(1)]
    desk.call_again(owner, lambda token: ReadJournal(token), lambda reply: None)
    desk.forget(owner)
    desk.now_ms = 999.0
    desk.tick()
    assert len(desk.effects) == 1


def test_a_controller_whose_write_was_not_answered_asks_at_the_pace_of_retries() -> None:
    controller = Controller(chain(), SETTINGS)
    asked = Counter[type]()
    for now_ms in SECOND:
        waiting = list(controller.tick(now_ms))
        while waiting:
            effect = waiting.pop()
            if isinstance(effect, ReadJournal) and not asked[SwapJournal]:
                asked[ReadJournal] += 1
                waiting += controller.handle(StoreReply(effect.token, None), now_ms)
            elif isinstance(effect, ReadJournal | SwapJournal):
                asked[type(effect)] += 1
                waiting += controller.handle(StoreReply(effect.token, error="failed"), now_ms)
    assert asked[SwapJournal] == 1
    assert 5 < asked[ReadJournal] <= 13
