"""Directed schedules: races too rare for seeds, and shrunk failures of earlier days, written down as small scripts.

They are run by the tests, and by the mutants that only they can find.
"""

from seep.sim.directed import (
    bases,
    busy,
    calm,
    copies,
    emptied,
    ended,
    full,
    gone,
    growing,
    idle,
    links,
    lives,
    loads,
    outages,
    parts,
    poison,
    saved,
    shown,
    sizes,
    tables,
    upgrades,
    zombies,
)
from seep.sim.directed.registry import SCENARIOS
from seep.sim.oracle import Violation

FILES = (
    calm,
    full,
    links,
    busy,
    zombies,
    gone,
    lives,
    bases,
    copies,
    outages,
    emptied,
    ended,
    idle,
    growing,
    loads,
    tables,
    parts,
    poison,
    saved,
    shown,
    upgrades,
    sizes,
)


def run_scenario(name: str) -> str:
    """The violation, or nothing."""
    try:
        SCENARIOS[name]()
    except Violation as violation:
        return str(violation) or "violated"
    return ""
