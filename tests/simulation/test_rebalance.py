"""Ranges that take a part of one partition and a part of the next, drawn into every schedule.

Seeds seldom hold still long enough for a load to be measured, so here every change of an operator is followed by a
rebalance, and its ranges are simply moved along the key space.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from seep.control import scaling
from seep.control.balance import Loads
from seep.control.requests import Rebalance, Request, ScaleTo
from seep.model.ids import KeyRange
from seep.protocol.journal import Entry, Journal
from seep.sim.schedule import run_schedule
from seep.sim.world import World

SEEDS = range(60_000, 60_020)


def moved(live: Sequence[Entry], loads: Loads) -> tuple[list[KeyRange], str]:
    """Every inner edge goes half the way to the next one."""
    edges = [live[0].key_range.low, *(e.key_range.high for e in live)]
    inner = [(one + other) // 2 for one, other in pairwise(edges[1:])]
    ranges = [KeyRange(low, high) for low, high in pairwise([edges[0], *inner, edges[-1]])]
    return (ranges if inner and all(r.size for r in ranges) else []), "moved"


def test_moving_the_edges_between_partitions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    request_as_it_is, begin_as_it_is = World.request, scaling._begin

    def request(world: World, asked: Request) -> None:
        request_as_it_is(world, asked)
        if isinstance(asked, ScaleTo) and world.graph.nodes[asked.operator].kind == "operator":
            for delay_ms in (5.0, 40.0):
                world.at(delay_ms, lambda: request_as_it_is(world, Rebalance(asked.operator)))

    def begin(*arguments: object) -> Journal:
        journal: Journal = begin_as_it_is(*arguments)  # type: ignore[arg-type]
        begun.append((len(journal.replaces[-1].old), len(journal.replaces[-1].ranges)))
        return journal

    monkeypatch.setattr(World, "request", request)
    monkeypatch.setattr(scaling, "plan_rebalance", moved)
    monkeypatch.setattr(scaling, "_begin", begin)
    found = {seed: run_schedule(seed).violation for seed in SEEDS}
    assert {seed: violation for seed, violation in found.items() if violation} == {}
    assert sum(old == new for old, new in begun) > len(SEEDS) // 4
