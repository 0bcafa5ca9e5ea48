"""A small fixed flow in a world without chance: what directed schedules and the exhaustive placements run on.

source (two splits) -> a -> out, three workers, no jitter: the same script gives the same events, so that a schedule
can be written down as times and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as with_fields
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from seep.control.requests import ScaleTo, Upgrade
from seep.model.ids import CONTROLLER, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Edge, Graph, Node
from seep.partition.operator import OperatorPartition
from seep.partition.worker import Partition, Worker
from seep.sim.checks import hidden
from seep.sim.light import Chained, LightIntake, LightOutlet, by_key, local
from seep.sim.oracle import Violation, check_journals, check_output, check_sources
from seep.sim.upgraded import code_of, upgrades_of
from seep.sim.world import SimNode, World

CALM = Settings(
    epoch_ms=5.0,
    epoch_rows=20,
    checkpoint_ms=20.0,
    increments=2,
    frame_rows=3,
    credit_epochs=8,
    copies_bytes=0,
    retry_ms=25.0,
    report_ms=5.0,
    suspect_ms=80.0,
    stuck_ms=1_500.0,
    spare_workers=1,
    at_most_ms=3_000.0,
)
LIMIT_MS = 20_000.0


def chain(rows: int = 160, starts: Mapping[str, int] | None = None, deep: bool = False, **kinds: Any) -> Graph:
    """s -> a -> out, or s -> a -> b -> out when `deep`; ``s=``, ``a=``, ``out=`` put another one in."""
    starts = starts or {}
    intake = kinds.get("s", LightIntake)
    logic = kinds.get("a", partial(Chained, keys=17))
    names = ["s", "a", "b", "out"] if deep else ["s", "a", "out"]
    edges = [Edge(f"{one}>{other}", one, other, 0) for one, other in pairwise(names)]
    makes: dict[str, Any] = {
        "s": partial(intake, 5, 2, rows // 2, 40, routes={"s>a": by_key}),
        "a": partial(logic, routes={"a>b": by_key} if deep else {"a>out": local}),
        "b": partial(Chained, keys=17, routes={"b>out": local}),
        "out": kinds.get("out", LightOutlet),
    }
    kind = {"s": "source", "out": "sink"}
    nodes = {name: Node(name, kind.get(name, "operator"), makes[name], start=starts.get(name, 1)) for name in names}
    return Graph(nodes, tuple(edges))


class Stage:
    """A world, a script of what happens in it, and the verdict."""

    def __init__(self, graph: Graph | None = None, workers: int = 3, parts: int = 1, **knobs: Any) -> None:
        self.graph = graph or chain()
        self.world = World(self.graph, with_fields(CALM, **knobs), Random(1), workers, parts, jitter_ms=0.0)
        self.world.upgrades.update(upgrades_of(self.graph))

    def at(self, ms: float, action: Callable[[], None]) -> None:
        self.world.at(ms, action)

    def scale(self, ms: float, operator: str, count: int) -> None:
        self.at(ms, lambda: self.world.request(ScaleTo(operator, count)))

    def upgrade(self, ms: float, operator: str, number: int = 0) -> None:
        self.at(ms, lambda: self.world.request(Upgrade(operator, code_of(operator, number))))

    def when(self, happens: Callable[[], bool], action: Callable[[], None], every_ms: float = 0.25) -> None:
        """Do it once, the first time that it is so."""

        def look() -> None:
            if happens():
                action()
            else:
                self.at(every_ms, look)

        self.at(every_ms, look)

    def host(self, partition: str) -> SimNode:
        """The live worker that runs it, by the journal's word."""
        found = self.find(partition)
        if found is None:
            raise Violation(f"nobody runs {partition}")
        return found

    def find(self, partition: str) -> SimNode | None:
        wanted = PartitionId.parse(partition)
        for node in self.world.live_workers():
            assert isinstance(node.machine, Worker)
            if wanted in node.machine.partitions:
                return node
        return None

    def partition(self, name: str) -> Partition:
        machine = self.host(name).machine
        assert isinstance(machine, Worker)
        return machine.partitions[PartitionId.parse(name)]

    def operator(self, name: str) -> OperatorPartition:
        found = self.partition(name)
        assert isinstance(found, OperatorPartition)
        return found

    def crash(self, partition: str) -> None:
        self.world.crash(self.host(partition).name)

    def cut(self, one: str, other: str, for_ms: float, both: bool = True) -> None:
        until_ms = self.world.now_ms + for_ms
        self.world.deaf_until[one, other] = until_ms
        if both:
            self.world.deaf_until[other, one] = until_ms

    def restart_controller(self, after_ms: float) -> None:
        self.world.crash(CONTROLLER)
        self.world.at(after_ms, self.world.start_controller)

    def over(self) -> bool:
        node = self.world.nodes[CONTROLLER]
        return node.alive and (self.world.controller.finished or bool(self.world.controller.journal.stopping))

    def play(self, watch: Callable[[], None] | None = None) -> str:
        """Run to the end; answers why it stopped (empty: it ran to the end, and all is right)."""
        world = self.world

        def done() -> bool:
            if watch is not None:
                watch()
            return self.over()

        if not world.run_until(done, LIMIT_MS):
            raise Violation(f"no end within {LIMIT_MS:.0f} ms")
        stopping = world.controller.journal.stopping
        if not stopping:
            check_sources(self.graph, world.store)
            if left := hidden(world):
                raise Violation(left)
        check_output(self.graph, world.store, complete=not stopping, upgrades=world.upgrades)
        check_journals(self.graph, world.store)
        return stopping

    def play_through(self, watch: Callable[[], None] | None = None) -> None:
        stopping = self.play(watch)
        if stopping:
            raise Violation(f"stopped: {stopping}")

    def given_up(self) -> list[str]:
        return [what for _, what in self.world.controller.decisions if "given up" in what]
