"""Other code for the operators of the simulator: it adds something to every value, and it remembers in another way, so
that it shows in which epoch it began, and that what was remembered was handed on, once, at the right time.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from functools import partial
from typing import Any

from seep.partition.contract import Graph, Upgrade
from seep.sim.light import LightLogic, LightState

SHIFTS = (101, 205)


def upgrades_of(graph: Graph) -> dict[str, Upgrade]:
    """By code: two for each operator."""
    return {
        code_of(node.name, number): Upgrade(
            with_fields(node, make=partial(_shifted, node.make, shift)), partial(_fitted, shift)
        )
        for node in graph.nodes.values()
        if node.kind == "operator"
        for number, shift in enumerate(SHIFTS)
    }


def code_of(operator: str, number: int) -> str:
    return f"{operator}+{number % len(SHIFTS)}"


def _shifted(make: Any, shift: int) -> LightLogic:
    logic: LightLogic = make()
    logic.shift = shift
    return logic


def _fitted(shift: int, state: LightState, now_ms: int) -> LightState:
    salt = shift + now_ms % 1_000
    return LightState(tuple((bucket, key, _value(value, salt)) for bucket, key, value in state.entries))


def _value(value: Any, salt: int) -> Any:
    if isinstance(value, tuple):
        at, total, time = value
        return at, (total * 5 + salt) % 1_000_000_007, time
    return (value * 5 + salt) % 1_000_000_007
