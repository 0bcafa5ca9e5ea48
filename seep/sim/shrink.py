"""Make a failing schedule smaller: leave out faults, one after the other, as long as it still fails."""

from __future__ import annotations

from random import Random

from seep.sim.faults import Fault, draw_faults
from seep.sim.flows import draw_flow
from seep.sim.schedule import draw_settings, run_schedule


def faults_of(seed: int) -> list[Fault]:
    """The faults that `run_schedule(seed)` draws."""
    random = Random(seed)
    draw_flow(random, random.choice((160, 240, 400)))
    draw_settings(random)
    random.choice((1, 2, 3, 4)), random.choice((1, 1, 2, 3))
    return draw_faults(random, random.choice((150.0, 400.0)))


def shrink(seed: int, faults: list[Fault] | None = None) -> list[Fault]:
    faults = faults_of(seed) if faults is None else faults
    smaller = True
    while smaller:
        smaller = False
        for index in range(len(faults)):
            fewer = faults[:index] + faults[index + 1 :]
            if run_schedule(seed, fewer).violation:
                faults, smaller = fewer, True
                break
    return faults
