"""One schedule: from a seed to a verdict. Same seed, same bytes."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from seep.control.controller import DRAIN
from seep.model.ids import CONTROLLER, PartitionId
from seep.model.settings import Settings
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.protocol.journal import SEALED, Journal
from seep.sim.faults import Fault, Injector, draw_faults
from seep.sim.flows import draw_flow
from seep.sim.oracle import Violation, check_journal, check_output, check_sources
from seep.sim.world import World

REST_EVERY = 8
"""Every so many seeds the schedule runs on after its end, to see it come to rest."""


@dataclass
class Outcome:
    seed: int
    shape: str
    violation: str = ""
    messages: int = 0
    hits: int = 0
    replaces: int = 0
    rows: int = 0
    virtual_ms: float = 0.0
    digest: int = 0
    interrupted: Counter[str] = field(default_factory=Counter)


def draw_settings(random: Random) -> Settings:
    """Knobs that make rare things common: credit 1, one row a frame, a checkpoint every epoch."""
    return Settings(
        epoch_ms=random.choice((2.0, 5.0, 10.0)),
        epoch_rows=random.choice((2, 6, 20)),
        checkpoint_ms=random.choice((1.0, 20.0, 60.0, 150.0)),
        increments=random.choice((0, 1, 4)),
        frame_rows=random.choice((1, 3, 100)),
        credit_bytes=random.choice((32, 320, 1 << 20)),
        credit_epochs=random.choice((1, 3, 32)),
        buffer_bytes=random.choice((20_000, 1 << 30)),
        retry_ms=random.choice((15.0, 40.0)),
        report_ms=random.choice((8.0, 20.0)),
        suspect_ms=random.choice((60.0, 150.0, 400.0)),
        spare_workers=random.choice((0, 1, 2)),
        at_most_ms=random.choice((300.0, 3_000.0)),
    )


def run_schedule(seed: int, faults: list[Fault] | None = None, rows: int = 0) -> Outcome:
    """Run the seed's flow under the seed's faults (or the given ones), heal, and judge."""
    random = Random(seed)
    shape, graph = draw_flow(random, rows or random.choice((160, 240, 400)))
    settings = draw_settings(random)
    workers, parts = random.choice((1, 2, 3, 4)), random.choice((1, 1, 2, 3))
    # Drawn in any case: with its own faults given back to it, a seed must be the same schedule.
    drawn = draw_faults(random, random.choice((150.0, 400.0)))
    faults = drawn if faults is None else faults
    world = World(graph, settings, random, workers, parts)
    injector = Injector(world)
    injector.schedule(faults)
    outcome = Outcome(seed, shape)
    try:
        calm_ms = max((fault.at_ms for fault in faults), default=0.0)
        world.run_until(lambda: False, calm_ms + 0.001)
        injector.heal()
        if not world.run_until(lambda: _over(world), world.now_ms + 30_000.0):
            raise Violation(f"no end within 30 s after the last fault: {_where(world)}")
        stopping = world.controller.journal.stopping
        drained = stopping == DRAIN
        stopping = "" if drained else stopping
        if stopping and not injector.beyond:
            raise Violation(f"stopped: {stopping}")
        if not stopping:
            check_sources(graph, world.store, complete=not drained)
            _check_rest(world, seed)
        outcome.rows = check_output(graph, world.store, complete=not stopping)
        for journal in world.store.journals:
            check_journal(graph, journal)
        _check_bounds(world)
    except Violation as violation:
        outcome.violation = str(violation)
    journals = world.store.journals
    outcome.messages, outcome.hits, outcome.virtual_ms = world.messages, injector.hits, world.now_ms
    outcome.replaces = sum(len(_sealed(after) - _sealed(before)) for before, after in pairwise(journals))
    outcome.interrupted = injector.interrupted
    state = repr((sorted(world.store.history.items()), world.messages, [j.version for j in journals], world.now_ms))
    outcome.digest = zlib.crc32(state.encode())
    return outcome


def _sealed(journal: Journal) -> set[PartitionId]:
    return {p for p, e in journal.entries.items() if e.role == SEALED}


def _over(world: World) -> bool:
    node = world.nodes[CONTROLLER]
    return node.alive and (world.controller.finished or world.controller.journal.stopping not in ("", DRAIN))


def _check_rest(world: World, seed: int) -> None:
    """In the end no Replace is pending and no sealed sink is left (a sealed sender stays when the last checkpoints of
    its receivers are older than its end: nothing more will come to replace them)."""
    if seed % REST_EVERY:
        return

    def rests() -> bool:
        journal = world.store.journal
        if journal is None or any(r.operator for r in journal.replaces):
            return False
        return all(world.graph.nodes[p.operator].kind != "sink" for p in _sealed(journal))

    if not world.run_until(rests, world.now_ms + 10_000.0):
        raise Violation(f"ended, but never at rest: {_where(world)}")


def _where(world: World) -> str:
    """Who stands where, for the report of a schedule that does not end."""
    lines = [f"replaces {world.controller.journal.replaces}"]
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        for name, partition in node.machine.partitions.items():
            lines.append(f"{node.name} {name} {partition.entry.role} {partition.status().epoch} {partition.running}")
    return "; ".join(lines)


def _check_bounds(world: World) -> None:
    limit = world.settings.credit_epochs
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        for partition in node.machine.partitions.values():
            outputs = None if not hasattr(partition, "outputs") else partition.outputs
            for cursors in outputs.cursors.values() if outputs else ():
                for cursor in cursors.values():
                    if len(cursor.opened) > limit:
                        kind = "source" if isinstance(partition, SourcePartition) else "operator"
                        raise Violation(f"{kind} has {len(cursor.opened)} epochs open on a channel, credit {limit}")
