"""Savepoints without processes: a flow runs in the simulator's world up to some epoch, and is saved as a job would."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path
from random import Random

import seep
from seep.control.requests import FixEpoch
from seep.flow.check import prepared, runnable
from seep.running.savepoint import Savepoint, source_positions, whole
from seep.sim.world import World

LIMIT_MS = 600_000.0
HEADROOM_EPOCHS = 1_000


def save(flow: seep.Flow, path: Path, epochs: int, key: bytes = b"k" * 32) -> Savepoint:
    """Run it for so many epochs, and save what it is then."""
    graph = prepared(runnable(flow))
    world = World(graph, with_fields(flow.settings, spare_workers=0), Random(0), 1, jitter_ms=0.0)
    controller = world.controller

    def slowest() -> int:
        # A sink that gets no rows says so only now and then; who has ended says nothing more.
        kinds = {name: node.kind for name, node in graph.nodes.items()}
        found = [s.epoch for p, s in controller.statuses.items() if kinds[p.operator] != "sink" and not s.ended]
        return min(found, default=0)

    def fixed() -> bool:
        wanted = [r for r in controller.journal.replaces if not r.operator]
        found = [controller.statuses[p] for r in wanted for p in r.old]
        at = wanted[0].at if wanted else 0
        return bool(found) and all(s.fixed_version and s.fixed_epoch == at for s in found) and slowest() >= at

    assert world.run_until(lambda: len(controller.statuses) >= len(graph.nodes) and slowest() >= epochs, LIMIT_MS)
    world.request(FixEpoch())
    assert world.run_until(fixed, LIMIT_MS)
    (replace,) = (r for r in controller.journal.replaces if not r.operator)
    checkpoints = [whole(world.store, p, controller.statuses[p].fixed_version) for p in replace.old]
    sources = [node.name for node in graph.nodes.values() if node.kind == "source"]
    positions = {name: source_positions(world.store, controller.journal, name, replace.at) for name in sources}
    highest = replace.at + HEADROOM_EPOCHS
    return Savepoint.write(path, key, flow.name, replace.at, highest, checkpoints, positions, graph)
