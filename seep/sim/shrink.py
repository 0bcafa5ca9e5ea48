"""Make a failing schedule smaller: leave out faults, one after the other, as long as it still fails."""

from __future__ import annotations

from random import Random

from seep.sim.faults import Fault
from seep.sim.schedule import draw_schedule, run_schedule


def faults_of(seed: int) -> list[Fault]:
    """The faults that `run_schedule(seed)` draws."""
    return draw_schedule(Random(seed), seed).faults


def shrink(seed: int, faults: list[Fault] | None = None) -> list[Fault]:
    faults = faults_of(seed) if faults is None else faults
    size = len(faults)
    while size:
        index = 0
        while index < len(faults):
            fewer = faults[:index] + faults[index + size :]
            if run_schedule(seed, fewer).violation:
                faults = fewer
            else:
                index += size
        size //= 2
    return faults
