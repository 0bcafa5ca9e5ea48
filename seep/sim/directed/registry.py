"""Directed schedules by name. Each raises `Violation`, or does nothing."""

from __future__ import annotations

from collections.abc import Callable

from seep.sim.oracle import Violation

Scenario = Callable[[], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


def demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)
