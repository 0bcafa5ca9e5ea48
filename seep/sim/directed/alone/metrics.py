"""A flow whose numbers are written by hand: what directed schedules of policies and of the governor are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seep.control.observed import Observed, Seen
from seep.control.policies import Wish
from seep.model.ids import EVERYTHING, FOREVER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.protocol.journal import LIVE, Entry, Journal, Replace

LINE = Graph(
    {name: Node(name, kind, None) for name, kind in (("in", "source"), ("work", "operator"), ("out", "sink"))},
    (Edge("in>work", "in", "work", 0), Edge("work>out", "work", "out", 0)),
)


def running(replaces: tuple[Replace, ...] = (), **counts: int) -> Journal:
    """So many partitions of each; one of those that are not named."""
    entries = {}
    for name in LINE.nodes:
        for number, part in enumerate(EVERYTHING.split(counts.get(name, 1))):
            who = PartitionId(name, number)
            entries[who] = Entry(who, part, 1, FOREVER, LIVE, Generation(1, number), "w")
    return Journal(version=1, entries=entries, replaces=replaces)


def restarted(journal: Journal, operator: str) -> Journal:
    """Its first partition was lost, and runs again."""
    who = PartitionId(operator, 0)
    again = replace(journal.entries[who], generation=Generation(1, 99))
    return replace(journal, entries={**journal.entries, who: again})


def flowing(
    arrival: float, rate: float, count: int, taken: float | None = None, at: float = 0.0, **more: Any
) -> Observed:
    """Rows arrive at a source; each partition of an operator can take `rate` of them in a second. ``more``: of the
    source."""
    taken = min(arrival, rate * count) if taken is None else taken
    share = taken / count
    return Observed(
        at,
        {
            "in": Seen("in", "source", (taken,), (0.1,), {"work": taken}, arrival=arrival, **more),
            "work": Seen("work", "operator", (share,) * count, (share / rate,) * count, {"out": taken}),
            "out": Seen("out", "sink", (taken,), (0.1,)),
        },
    )


def but(seen: Observed, name: str, **changed: Any) -> Observed:
    """The same, with this of one operator otherwise."""
    return replace(seen, operators={**seen.operators, name: replace(seen.operators[name], **changed)})


def counts(wishes: Mapping[str, Wish]) -> dict[str, int]:
    return {name: wish.count for name, wish in wishes.items()}
