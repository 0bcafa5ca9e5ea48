"""Directed schedules: races too rare for seeds, and shrunk failures of earlier days, written down as small scripts.

Those of single parts by themselves are in `alone`.

They are run by the tests, and by the mutants that only they can find.
"""

from seep.sim.directed import (
    alone,
    bases,
    busy,
    calm,
    copies,
    emptied,
    ended,
    fixed,
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
    *alone.FILES,
    saved,
    sizes,
    # Whole worlds.
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
    fixed,
    idle,
    growing,
    loads,
    tables,
    parts,
    poison,
    shown,
    upgrades,
)


def in_order() -> list[str]:
    """All names, those of single parts first: they take no time."""
    places = {file.__name__: place for place, file in enumerate(FILES)}
    return sorted(SCENARIOS, key=lambda name: places[SCENARIOS[name].__module__])


def run_scenario(name: str) -> str:
    """The violation, or nothing."""
    try:
        SCENARIOS[name]()
    except Violation as violation:
        return str(violation) or "violated"
    return ""
