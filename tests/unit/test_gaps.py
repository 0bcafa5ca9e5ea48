"""How long a sink stands still around a Replace, from journals and epochs alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from seep.control import planner
from seep.model.ids import EVERYTHING, PartitionId
from seep.partition.contract import Graph, Node
from seep.partition.sink import SinkPartition
from seep.protocol.journal import Journal
from seep.runtime.gaps import Gaps

WORK, OUT = PartitionId("work", 0), PartitionId("out", 0)
CALM = planner.restart(planner.first_journal(Graph({"work": Node("work", "operator", None)}, ())), WORK, "w1")
BEGUN = planner.begin(CALM, "work", [WORK], EVERYTHING.split(2), 0, handover=False)
SHADOWED = planner.start_shadows(BEGUN, BEGUN.replaces[0], {WORK: (1, 5)})
OVER = planner.commit(SHADOWED, SHADOWED.replaces[0], 9)


def sink(taken: int) -> Any:
    made = cast(Any, SinkPartition.__new__(SinkPartition))
    made.running, made.ended = True, False
    made.entry, made.inputs = SimpleNamespace(partition=OUT), SimpleNamespace(taken=taken)
    return made


def seen(*looks: tuple[float, int, Journal]) -> tuple[int, float]:
    """(how many were counted, their ms) after looks at (ms, epoch taken, journal)."""
    gaps = Gaps()
    for at_ms, taken, journal in looks:
        gaps.look([sink(taken)], journal, at_ms)
    found = gaps.seen.get(OUT)
    return (sum(found.counts), found.sum_ms) if found else (0, 0.0)


def test_the_longest_time_until_the_new_ones_are_heard() -> None:
    calm = [(0.0, 5, CALM), (10.0, 6, CALM)]
    change = [(20.0, 6, BEGUN), (60.0, 7, BEGUN), (70.0, 8, OVER)]
    assert seen(*calm, *change) == (0, 0.0), "epoch 8 came from the old ones"
    assert seen(*calm, *change, (200.0, 9, OVER)) == (1, 130.0)
    assert seen(*calm, *change, (200.0, 9, OVER), (900.0, 10, OVER)) == (1, 130.0), "that is none of ours"


def test_calm_counts_nothing() -> None:
    assert seen((0.0, 5, CALM), (5_000.0, 6, CALM), (9_000.0, 7, CALM)) == (0, 0.0)
