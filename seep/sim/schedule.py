"""One schedule: from a seed to a verdict. Same seed, same bytes.

It lasts until enough has happened: the sources stay open until at least `MESSAGES` messages were handled and `HITS`
faults hit something live; then everything heals, the input ends, and what was committed is judged.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from seep.control.controller import DRAIN
from seep.model.ids import CONTROLLER, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Graph, Upgrade
from seep.partition.worker import Worker
from seep.protocol.journal import SEALED, Journal
from seep.sim.checks import Watch, hidden, unrest
from seep.sim.deadly import poisoned
from seep.sim.faults import LATE, MAIN, RESERVE, Fault, draw_faults, draw_growth
from seep.sim.flows import DrawnFlow, draw_flow
from seep.sim.injector import Injector
from seep.sim.oracle import Violation, check_journals, check_output, check_sources
from seep.sim.upgraded import upgrades_of
from seep.sim.world import ProcessDied, World

MESSAGES = 1_000
HITS = 5
REST_EVERY = 4
"""Every so many seeds the schedule runs on after its end, to see it come to rest."""
COLUMNS_EVERY = 20
"""Every so many seeds everything goes through Arrow columns, the wire form and the checkpoint codec."""
POISON_EVERY = 7
"""Every so many seeds (and not the others) some rows kill whoever runs them."""
GROWS_EVERY = 3
"""Every so many seeds the sources get splits while they run."""
LOOK_MS = 2.0
LAST_ROWS = 6
LIMIT_MS = 30_000.0


@dataclass
class Outcome:
    seed: int
    shape: str
    violation: str = ""
    messages: int = 0
    hits: int = 0
    replaces: int = 0
    upgrades: int = 0
    rows: int = 0
    refused: int = 0
    """Writes of fenced generations that the store turned away."""
    lost_writes: int = 0
    stopped: str = ""
    """The report with which the flow stopped, where the promise allows it."""
    columns: bool = False
    poisons: int = 0
    """Rows that killed whoever ran them, and were found."""
    virtual_ms: float = 0.0
    digest: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Drawn:
    """All that a seed says before anything happens."""

    flow: DrawnFlow
    settings: Settings
    workers: int
    parts: int
    faults: list[Fault]


def draw_settings(random: Random) -> Settings:
    """Knobs that make rare things common: credit 1, one row a frame, a checkpoint every epoch."""
    return Settings(
        epoch_ms=random.choice((2.0, 5.0, 10.0)),
        epoch_rows=random.choice((2, 6, 20)),
        first_epoch_rows=random.choice((1, 4, 100)),
        checkpoint_ms=random.choice((1.0, 20.0, 60.0, 150.0)),
        increments=random.choice((0, 1, 4)),
        frame_rows=random.choice((1, 3, 100)),
        credit_bytes=random.choice((32, 320, 1 << 20)),
        credit_epochs=random.choice((1, 3, 32)),
        buffer_bytes=random.choice((20_000, 1 << 30)),
        copies_bytes=random.choice((0, 2_000, 1 << 28)),
        retry_ms=random.choice((15.0, 40.0)),
        report_ms=random.choice((8.0, 20.0)),
        suspect_ms=random.choice((60.0, 150.0, 400.0)),
        stuck_ms=random.choice((250.0, 10_000.0)),
        spare_workers=random.choice((0, 1, 2)),
        release_ms=random.choice((5.0, 100.0, 10_000.0)),
        at_most_ms=random.choice((300.0, 3_000.0)),
    )


def draw_schedule(random: Random, seed: int) -> Drawn:
    flow, settings = draw_flow(random), draw_settings(random)
    workers, parts = random.choice((1, 2, 3, 4)), random.choice((1, 1, 2, 3))
    until_ms = random.choice((90.0, 240.0))
    faults = draw_faults(random, until_ms)
    if seed % GROWS_EVERY == 1:
        faults = [*draw_growth(random, until_ms), *faults]
        for supply in flow.supplies.values():
            supply.grows = True
    return Drawn(flow, settings, workers, parts, faults)


def run_schedule(seed: int, faults: list[Fault] | None = None) -> Outcome:
    """Run the seed's flow under the seed's faults (or the given ones), heal, and judge."""
    random = Random(seed)
    drawn = draw_schedule(random, seed)
    columns, poison = seed % COLUMNS_EVERY == 0, seed % POISON_EVERY == 2
    flow, graph = drawn.flow, poisoned(drawn.flow.graph) if poison else drawn.flow.graph
    world = (_columns if columns else World)(graph, drawn.settings, random, drawn.workers, drawn.parts)
    injector, watch = Injector(world, flow), Watch(world)
    world.watch = watch
    for code, upgrade in upgrades_of(graph).items():
        world.upgrades[code] = _upgrade_in_columns(upgrade) if columns else upgrade
    outcome = Outcome(seed, flow.shape, columns=columns)
    try:
        _play(world, injector, drawn.faults if faults is None else faults)
        injector.heal()
        for name, supply in flow.supplies.items():
            supply.end(flow.splits[name], LAST_ROWS)
        _run_to_end(world)
        outcome.stopped = _judge(graph, world, watch, injector.wiped, rest=seed % REST_EVERY == 0)
        outcome.rows = check_output(graph, world.store, not outcome.stopped, upgrades_of(graph))
        check_journals(graph, world.store)
    except Violation as violation:
        outcome.violation = str(violation)
    except ProcessDied as died:
        outcome.violation = f"a row that kills was run in one piece: {died}"
    store, journals = world.store, world.store.journals
    outcome.messages, outcome.hits, outcome.virtual_ms = world.messages, injector.hits, world.now_ms
    outcome.replaces = sum(len(_sealed(after) - _sealed(before)) for before, after in pairwise(journals))
    outcome.upgrades = sum(map(len, journals[-1].codes.values())) if journals else 0
    outcome.kinds, outcome.interrupted = injector.kinds, injector.interrupted
    outcome.poisons = len(journals[-1].poisons) if journals else 0
    outcome.refused, outcome.lost_writes = store.refused, store.lost_writes
    state = repr((sorted(store.history.items()), world.messages, [j.version for j in journals], world.now_ms))
    outcome.digest = zlib.crc32(state.encode())
    return outcome


def _columns(graph: Graph, settings: Settings, random: Random, workers: int, parts: int) -> World:
    # Imported here: most schedules do without columns.
    from seep.sim.columns import ColumnStore, Wire, in_columns

    return World(in_columns(graph), settings, random, workers, parts, store=ColumnStore(), carry=Wire())


def _upgrade_in_columns(upgrade: Upgrade) -> Upgrade:
    from seep.sim.columns import upgrade_in_columns

    return upgrade_in_columns(upgrade)


def _play(world: World, injector: Injector, faults: list[Fault]) -> None:
    """The main part of the plan; of the reserve what it takes to hit often enough; then what may end the flow."""
    main = [fault for fault in faults if fault.part == MAIN]
    for fault in main:
        world.at(fault.at_ms, injector.perform, fault)
    world.run_for(max((fault.at_ms for fault in main), default=0.0) + LOOK_MS)
    limit_ms = world.now_ms + LIMIT_MS
    for fault in [fault for fault in faults if fault.part == RESERVE]:
        if injector.hits >= HITS:
            break
        world.run_for(fault.at_ms)
        while not injector.perform(fault, tries=1) and world.now_ms < limit_ms:
            world.run_for(LOOK_MS)
    while world.messages < MESSAGES and world.now_ms < limit_ms:
        world.run_for(LOOK_MS)
    for fault in [fault for fault in faults if fault.part == LATE]:
        world.run_for(fault.at_ms)
        injector.perform(fault)


def _run_to_end(world: World) -> None:
    limit_ms = world.now_ms + LIMIT_MS
    while not _over(world):
        if world.now_ms > limit_ms:
            raise Violation(f"no end within 30 s after the last fault: {_where(world)}")
        world.run_for(LOOK_MS)


def _judge(graph: Graph, world: World, watch: Watch, wiped: bool, rest: bool) -> str:
    """Why it stopped, if it may."""
    stopping = world.controller.journal.stopping
    drained = stopping == DRAIN
    if stopping and not drained:
        if not (world.store.beyond or wiped):
            raise Violation(f"stopped: {stopping}")
        return stopping
    if wiped and not world.store.journal:
        raise Violation("the store has lost everything, and nobody has said so")
    check_sources(graph, world.store, complete=not drained)
    if left := hidden(world):
        raise Violation(f"ended, but {left}")
    limit_ms = world.now_ms + LIMIT_MS / 3
    while rest and unrest(world, watch):
        if world.now_ms > limit_ms:
            raise Violation(f"ended, but never at rest: {unrest(world, watch)}; {_where(world)}")
        world.run_for(LOOK_MS * 5)
    return ""


def _sealed(journal: Journal) -> set[PartitionId]:
    return {p for p, e in journal.entries.items() if e.role == SEALED}


def _over(world: World) -> bool:
    node = world.nodes[CONTROLLER]
    return node.alive and (world.controller.finished or world.controller.journal.stopping not in ("", DRAIN))


def _where(world: World) -> str:
    """Who stands where, for the report of a schedule that does not end."""
    lines = [f"replaces {world.controller.journal.replaces}"]
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        for name, partition in node.machine.partitions.items():
            lines.append(f"{node.name} {name} {partition.entry.role} {partition.status().epoch} {partition.running}")
    return "; ".join(lines)
