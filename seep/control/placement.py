"""Which worker gets a partition: one without the same operator first, then the least loaded; where there is a choice,
one whose host and executor have the least of the operator, and of everything; then by name.

A worker's own load comes first, since it has one processing thread. That pieces of one operator are spread over hosts
is why the loss of one is the loss of few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from seep.model.ids import NOWHERE, PartitionId, Place
from seep.protocol.journal import Journal

Places = Mapping[str, Place]


def idle(journal: Journal, workers: Iterable[str]) -> list[str]:
    """Those of the workers that run nothing."""
    used = {entry.worker for entry in journal.entries.values()}
    return [worker for worker in workers if worker not in used]


def place(journal: Journal, partition: PartitionId, workers: Iterable[str], places: Places) -> str:
    """The worker to run it on; empty when there is none."""
    others = [entry for entry in journal.entries.values() if entry.partition != partition]
    load = Counter(entry.worker for entry in others)
    same = Counter(entry.worker for entry in others if entry.partition.operator == partition.operator)
    load_there, same_there = _there(load, places), _there(same, places)

    def cost(worker: str) -> tuple[int, int, int, int, int, int, str]:
        at = places.get(worker, NOWHERE)
        near = same_there[at.host], same_there[at], load_there[at.host], load_there[at]
        return (same[worker], load[worker], *near, worker)

    return min(workers, key=cost, default="")


def spread(workers: Iterable[str], count: int, places: Places) -> list[str]:
    """So many of them, over as many hosts and executors as there are; then by name.

    >>> spread(["w1", "w2", "w3"], 2, {"w1": Place("h1"), "w2": Place("h1"), "w3": Place("h2")})
    ['w1', 'w3']
    """
    left, chosen = sorted(workers), Counter[str]()
    while left and chosen.total() < count:
        there = _there(chosen, places)
        at = {worker: places.get(worker, NOWHERE) for worker in left}
        best = min(left, key=lambda w: (there[at[w].host], there[at[w]], w))
        chosen[best] = 1
        left.remove(best)
    return sorted(chosen)


def _there(counts: Mapping[str, int], places: Places) -> Counter[Place | str]:
    """Summed over each executor and each host."""
    there: Counter[Place | str] = Counter()
    for worker, count in counts.items():
        at = places.get(worker, NOWHERE)
        there[at] += count
        there[at.host] += count
    return there
