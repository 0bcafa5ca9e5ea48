"""What is done to a flow from Kafka to Kafka, in which order, and what was seen of each.

Faults come in rounds: one, or two of different kinds that overlap. A round is over when results come as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from benchmarks.outcome import spread
from benchmarks.reader import Result
from benchmarks.topics import KEYS

WORKER, EXECUTOR, PAIR, SINK, CONTROLLER = "worker", "executor", "pair", "sink", "controller"
BROKER, PAUSE, REDIS, EMPTIED = "broker", "pause", "redis", "emptied"
REPLACED = (WORKER, EXECUTOR, PAIR, SINK)
"""Others take over at once; what is of any other kind comes back itself."""
KILLED = (*REPLACED, CONTROLLER)
SERVERS = (BROKER, PAUSE, REDIS, EMPTIED)
KINDS = (*KILLED, *SERVERS)
ALONE = frozenset({EMPTIED})
"""It ends the flow."""
APART = (frozenset({BROKER, PAUSE}), frozenset({REDIS, CONTROLLER}))
"""Not together: a broker that is dead cannot be paused, and no flow is started while its store is away."""
TOGETHER_SHARE = 0.6


@dataclass
class Fault:
    kind: str
    at: float
    """When, on the monotonic clock."""
    over: float
    """When whatever was taken away was there again; of what must be replaced by others: the same as `at`."""
    window: int
    """The one that was written to at that moment."""
    alone: bool = True
    """No other fault in the same round: times are those of this one."""
    recovery_seconds: float = float("nan")
    """From `over` to results of all keys that hold rows written after it."""
    still_seconds: float = float("nan")
    """The longest time in which the reader saw nothing."""


def plan(on: str, kills: int) -> dict[str, int]:
    """How often each kind: so many kills of processes of the flow, and on top of them those of the servers.

    >>> plan("local", 100)
    {'worker': 50, 'pair': 20, 'sink': 20, 'controller': 10, 'broker': 10, 'pause': 10, 'redis': 18, 'emptied': 2}
    >>> [plan("spark", 20)[kind] for kind in (WORKER, EXECUTOR, PAIR, SINK, CONTROLLER, BROKER, PAUSE, REDIS, EMPTIED)]
    [7, 4, 4, 4, 1, 2, 2, 3, 1]
    """
    tenth, fifth = -(-kills // 10), kills // 5
    # A driver of Spark takes its whole cluster with it and some fifteen seconds to come back.
    others = {PAIR: fifth, SINK: fifth, CONTROLLER: max(1, kills // 20) if on == "spark" else kills // 10}
    if on == "spark":
        others = {EXECUTOR: fifth, **others}
    emptied = -(-kills // 50)
    servers = {BROKER: tenth, PAUSE: tenth, REDIS: max(0, 2 * tenth - emptied), EMPTIED: emptied}
    counts = {WORKER: max(0, kills - sum(others.values())), **others, **servers}
    return {kind: count for kind, count in counts.items() if count}


def rounds(counts: dict[str, int], rng: Random) -> list[tuple[str, ...]]:
    """Every fault of a plan, drawn into rounds.

    >>> found = rounds(plan("local", 100), Random(7))
    >>> sum(map(len, found)), max(map(len, found)), all((EMPTIED,) == one for one in found if EMPTIED in one)
    (140, 2, True)
    """
    left = [kind for kind, count in counts.items() for _ in range(count)]
    rng.shuffle(left)
    found: list[tuple[str, ...]] = []
    while left:
        first = left.pop()
        fitting = [kind for kind in left if _may_overlap(first, kind)]
        if fitting and rng.random() < TOGETHER_SHARE:
            second = rng.choice(fitting)
            left.remove(second)
            found.append((first, second))
        else:
            found.append((first,))
    return found


def _may_overlap(one: str, other: str) -> bool:
    both = {one, other}
    return len(both) == 2 and not both & ALONE and not any(both <= apart for apart in APART)


def measure(fault: Fault, results: Sequence[Result]) -> None:
    """`results` in the order in which they came."""
    fresh: set[str] = set()
    times = [fault.at]
    for result in results:
        if result.at < fault.at:
            continue
        times.append(result.at)
        if result.at >= fault.over and result.window > fault.window:
            fresh.add(result.key)
            if len(fresh) == KEYS:
                fault.recovery_seconds = result.at - fault.over
                break
    fault.still_seconds = max((later - earlier for earlier, later in pairwise(times)), default=float("nan"))


def figures(faults: Sequence[Fault], results: Sequence[Result]) -> dict[str, Any]:
    """Times of a kind are of those that came alone; `stood_still_ms` is of the whole run, whatever happened in it."""

    def of(*kinds: str) -> list[Fault]:
        return [fault for fault in faults if fault.kind in kinds]

    still_ms = [1000 * (later.at - earlier.at) for earlier, later in pairwise(results)]
    found: dict[str, Any] = {
        "kills": len(of(*KILLED)),
        **{f"{kind}_kills": len(of(kind)) for kind in (*KILLED, BROKER, REDIS) if of(kind)},
        "broker_pauses": len(of(PAUSE)),
        "redis_emptied": len(of(EMPTIED)),
        "overlapping": sum(not fault.alone for fault in faults),
        "unrecovered": sum(fault.recovery_seconds != fault.recovery_seconds for fault in faults),
        "recovery_ms": spread([1000 * f.recovery_seconds for f in of(*REPLACED) if f.alone]),
        "stood_still_ms": round(max(still_ms, default=float("nan")), 1),
    }
    for kind in KINDS:
        alone = [fault for fault in of(kind) if fault.alone]
        if alone:
            found[f"{kind}_recovery_ms"] = spread([1000 * fault.recovery_seconds for fault in alone])
            found[f"{kind}_stood_still_ms"] = spread([1000 * fault.still_seconds for fault in alone])
    return found
