"""A plan of chaos in people's words, ``kill every 5s; scale random``, as deeds in time, by a seed."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from seep.errors import Misuse
from seep.model.duration import positive_microseconds

KILL, PAUSE, CUT, SCALE = "kill", "pause", "cut", "scale"
SCALE_EVERY = "10s"
AT_MOST = 100_000
"""Of one kind: all of a plan's deeds are drawn before the first is done."""

_DEEDS = {
    KILL: re.compile(r"kill every (?P<every>\S+)"),
    PAUSE: re.compile(r"pause (?P<lasts>\S+) every (?P<every>\S+)"),
    CUT: re.compile(r"cut (?P<lasts>\S+) every (?P<every>\S+)"),
    SCALE: re.compile(r"scale random(?: every (?P<every>\S+))?"),
}


class Deed(NamedTuple):
    at: float
    """Seconds from the beginning."""
    kind: str
    lasts: float = 0.0


def deeds(plan: str, seconds: float, seed: int = 42) -> list[Deed]:
    """What a plan comes to: each deed about as often as it says, never twice at the same moment.

    >>> [(round(d.at), d.kind) for d in deeds("kill every 5s; scale random every 8s", 20.0)]
    [(6, 'kill'), (10, 'scale'), (11, 'kill'), (17, 'kill'), (17, 'scale')]
    """
    random, found = Random(f"chaos {seed}"), []
    for part in filter(None, (part.strip() for part in plan.split(";"))):
        kind, every, lasts = _read(part)
        if seconds / every > AT_MOST:
            raise Misuse(
                f"{part!r} for {seconds:.0f} s is more than {AT_MOST:,} deeds; do it less often, or for less long"
            )
        at = every * random.uniform(0.8, 1.2)
        while at < seconds:
            found.append(Deed(at, kind, lasts))
            at += every * random.uniform(0.8, 1.2)
    if not found:
        raise Misuse(f"plan {plan!r} does nothing in {seconds:.0f} s; such as: kill every 5s; pause 2s every 20s")
    return sorted(found)


def _read(part: str) -> tuple[str, float, float]:
    for kind, form in _DEEDS.items():
        match = form.fullmatch(part)
        if match:
            given = match.groupdict()
            every = positive_microseconds(given["every"] or SCALE_EVERY) / 1e6
            return kind, every, positive_microseconds(given.get("lasts") or "1s") / 1e6
    raise Misuse(
        f"{part!r} is no part of a plan; there are: kill every 5s; pause 2s every 20s; cut 1s every 15s; scale random"
    )
