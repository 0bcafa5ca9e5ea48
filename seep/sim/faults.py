"""Faults as data: a plan of what goes wrong and when, drawn from the seed.

A plan has three parts. The main one is always performed. The reserve follows it, fault after fault, for as long as too
little has happened. What may end the flow comes last, so that every schedule first has its share of what must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

MAIN, RESERVE, LATE = "main", "reserve", "late"

CRASH = "crash"

HITTING = (
    CRASH,
    "crash two",
    "crash replaced",
    "half-open",
    "pause",
    "busy",
    "timers",
    "deaf",
    "cut",
    "slow",
    "clock",
    "controller",
    "controller in replace",
    "store",
    "lost tail",
    "damage",
    "forget copies",
    "idle",
)
"""Something live is hit; `seep.sim.injector` says how."""
ASKING = ("scale", "scale", "scale", "scale neighbours", "upgrade", "upgrade", "fix epoch")
"""What users ask for: no faults, but what faults must meet."""
ENDING = ("drain", "flip", "wipe")
"""The flow may end by it: a drain, or a stop with a report."""
GROWING = "grow"
"""A source gets a split more, in flows whose sources may."""
KINDS = (*HITTING, *ASKING, *ENDING, GROWING)

RESERVES = 40


@dataclass(frozen=True)
class Fault:
    at_ms: float
    """Of the main part: since the beginning. Else: after the fault before it."""
    kind: str
    pick: int
    """Chooses the victim among those there are."""
    length_ms: float
    part: str = MAIN


def draw_faults(random: Random, until_ms: float) -> list[Fault]:
    """Swarm: each seed has its own subset of kinds, so that rare ones also meet undisturbed."""
    kinds = [kind for kind in (*HITTING, *ASKING) if random.random() < 0.6] or [CRASH, "scale"]
    if "scale" not in kinds and random.random() < 0.7:
        kinds.append("scale")
    main = [
        _draw(random, random.choice(kinds), 20.0 + random.random() * until_ms) for _ in range(random.randint(7, 13))
    ]
    hitting = [kind for kind in kinds if kind in HITTING] or [CRASH, "pause"]
    reserve = [_draw(random, random.choice(hitting), random.random() * 16.0, RESERVE) for _ in range(RESERVES)]
    late: list[Fault] = []
    if random.random() < 0.3:
        ending = random.choice(ENDING)
        after = [random.choice(hitting) for _ in range(random.randint(1, 3))]
        late = [_draw(random, kind, random.random() * 40.0, LATE) for kind in (ending, *after)]
    return [*sorted(main, key=lambda fault: fault.at_ms), *reserve, *late]


def draw_growth(random: Random, until_ms: float) -> list[Fault]:
    return [_draw(random, GROWING, random.random() * until_ms) for _ in range(random.randint(1, 5))]


def _draw(random: Random, kind: str, at_ms: float, part: str = MAIN) -> Fault:
    length_ms = random.choice((5.0, 30.0, 120.0, 400.0)) * (0.5 + random.random())
    return Fault(at_ms, kind, random.randrange(1 << 30), length_ms, part)
