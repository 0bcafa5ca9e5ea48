"""Flows at one epoch, without processes: run in the simulator's world and fixed as a job would be; saved or audited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path
from random import Random
from typing import Any

import seep
from seep.control.requests import FixEpoch
from seep.flow.check import prepared, runnable
from seep.protocol.messages import Message
from seep.running.audit import audit_of
from seep.running.savepoint import Savepoint, at_hand, source_positions, whole
from seep.sim.world import World
from seep.state.checkpoint import Checkpoint

LIMIT_MS = 600_000.0
HEADROOM_EPOCHS = 1_000


@dataclass
class Fixed:
    """A world in which every operator partition has kept its checkpoint of one epoch."""

    world: World
    epoch: int
    checkpoints: list[Checkpoint]
    positions: dict[str, Any]

    def audit(self) -> dict[str, Any]:
        world = self.world
        journal = world.controller.journal
        return audit_of(world.graph, journal, world.store, self.epoch, self.checkpoints, self.positions)


def fix(
    flow: seep.Flow,
    epochs: int,
    workers: int = 1,
    carry: Callable[[Message], Message] | None = None,
    midway: Callable[[World], None] | None = None,
) -> Fixed:
    """Run it for so many epochs. ``carry``: what becomes of a message between two workers; ``midway``: what happens
    when half of them are over."""
    graph = prepared(runnable(flow))
    settings = with_fields(flow.settings, spare_workers=0)
    world = World(graph, settings, Random(0), workers, jitter_ms=0.0, carry=carry)
    controller = world.controller
    kinds = {name: node.kind for name, node in graph.nodes.items()}

    def slowest() -> int:
        # A sink that gets no rows says so only now and then; who has ended says nothing more.
        found = [s.epoch for p, s in controller.statuses.items() if kinds[p.operator] != "sink" and not s.ended]
        return min(found, default=0)

    def fixed() -> bool:
        wanted = [r for r in controller.journal.replaces if not r.operator]
        found = [controller.statuses[p] for r in wanted for p in r.old]
        at = wanted[0].at if wanted else 0
        return bool(found) and all(s.fixed_version and s.fixed_epoch == at for s in found) and slowest() >= at

    def committed() -> bool:
        at = next(r.at for r in controller.journal.replaces if not r.operator)
        return all(s.epoch >= at for p, s in controller.statuses.items() if kinds[p.operator] == "sink")

    def reached(epoch: int) -> bool:
        return len(controller.statuses) >= len(graph.nodes) and slowest() >= epoch

    if midway is not None:
        assert world.run_until(lambda: reached(epochs // 2), LIMIT_MS)
        midway(world)
    assert world.run_until(lambda: reached(epochs), LIMIT_MS)
    world.request(FixEpoch())
    assert world.run_until(fixed, LIMIT_MS)
    assert world.run_until(committed, LIMIT_MS)
    (replace,) = (r for r in controller.journal.replaces if not r.operator)
    checkpoints = [whole(world.store, p, controller.statuses[p].fixed_version) for p in replace.old]
    sources = [name for name, kind in kinds.items() if kind == "source"]
    positions = {name: source_positions(world.store, controller.journal, name, replace.at) for name in sources}
    return Fixed(world, replace.at, checkpoints, positions)


def save(flow: seep.Flow, path: Path, epochs: int, key: bytes = b"k" * 32) -> Savepoint:
    """Run it for so many epochs, and save what it is then."""
    found = fix(flow, epochs)
    highest, graph = found.epoch + HEADROOM_EPOCHS, found.world.graph
    reads = at_hand(found.checkpoints)
    return Savepoint.write(path, key, flow.name, found.epoch, highest, reads, found.positions, graph)
