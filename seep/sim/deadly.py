"""Operators, sources and sinks with rows that kill whoever runs them.

What is left out of them comes out marked, like a dead letter. A run that leaves out a row which does no harm, or a
replay that comes to one which does, is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import partial
from typing import Any

from seep.errors import Misuse
from seep.model.care import Care, Condemned, Spot, carefree
from seep.model.epoch import Moment
from seep.partition.contract import Graph
from seep.sim.light import Chained, Item, LightIntake, LightOutlet, Row
from seep.sim.oracle import Violation
from seep.sim.world import ProcessDied

LETTER = -1
"""The key of a row that stands for one that was left out."""
ONE_IN = 199

Deadly = Callable[[Row], bool]


def now_and_then(row: Row) -> bool:
    return row[1] % ONE_IN == 7


def sift(care: Care, items: list[Item], deadly: Deadly, step: str = "step") -> tuple[list[Item], list[Item]]:
    """User code runs for these rows: those that it has survived, and letters for those that are left out."""
    seen: Counter[int] = Counter()
    good: list[Item] = []
    letters: list[Item] = []
    for bucket, row in items:
        spot = Spot(step, bucket, seen[bucket])
        seen[bucket] += 1
        if spot in care.skips:
            if not deadly(row):
                raise Violation(f"{row} is left out ({spot}), and does no harm")
            letters.append((bucket, (LETTER, row[1], row[2])))
            continue
        care.begin(spot, "step", fails=False)
        if deadly(row):
            raise ProcessDied(row)
        good.append((bucket, row))
    care.end()
    return good, letters


class DeadlyChained(Chained):
    def __init__(self, routes: Mapping[str, Any], keys: int, deadly: Deadly = now_and_then) -> None:
        super().__init__(routes, keys)
        self.deadly = deadly

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        good, letters = sift(self.care, items, self.deadly)
        return super().fold(moment, good) + letters


class DeadlyIntake(LightIntake):
    deadly: Deadly = staticmethod(now_and_then)

    def step(self, split: int, items: list[Item]) -> list[Item]:
        good, letters = sift(self.care, items, self.deadly, f"{split}:")
        return good + letters


class DeadlyOutlet(LightOutlet):
    """Shows an epoch in one call: no row of it can be left out, so it is found, and the flow stops with its name."""

    deadly: Deadly = staticmethod(now_and_then)
    care: Callable[[int], Care] = staticmethod(carefree)

    def publish(self, commits: Sequence[tuple[int, Any, bool]]) -> int:
        for epoch, items, _ in commits:
            care = self.care(epoch)
            try:  # not care.whole: what stands for a death here would pass through its end
                care.begin(Spot("write", 0, 0), f"write of epoch {epoch}", fails=True)
            except Condemned as found:
                raise Misuse(f"{found.shown}: the process died again and again in this call") from found
            if any(self.deadly(row) for _, row in items or ()):
                raise ProcessDied(epoch)
            care.end()
        return super().publish(commits)


def poisoned(graph: Graph) -> Graph:
    """The same flow with such rows in it."""
    kinds: dict[Any, Any] = {Chained: DeadlyChained, LightIntake: DeadlyIntake}
    nodes = {}
    for name, node in graph.nodes.items():
        kind = kinds.get(getattr(node.make, "func", None))
        make = node.make if kind is None else partial(kind, *node.make.args, **node.make.keywords)
        nodes[name] = with_fields(node, make=make)
    return Graph(nodes, graph.edges)
