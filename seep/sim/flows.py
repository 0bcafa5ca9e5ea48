"""The flows that are run in the simulator: small, but every shape the protocol has rules for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from seep.partition.contract import Edge, Graph, Node
from seep.sim.light import Chained, Informed, LightIntake, LightOutlet, Supply, Timed, Windowed, by_key, local


@dataclass(frozen=True)
class DrawnFlow:
    shape: str
    graph: Graph
    supplies: dict[str, Supply]
    """By source."""
    splits: dict[str, int]


class _Builder:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: dict[str, tuple[str, Callable[..., object]]] = {}
        self.edges: list[Edge] = []
        self.supplies: dict[str, Supply] = {}
        self.splits: dict[str, int] = {}
        self.loads: dict[str, int] = {}

    def node(self, name: str, kind: str, make: Callable[..., object], *inputs: str, told: str | None = None) -> str:
        """``told``: the input that is broadcast."""
        self.nodes[name] = (kind, make)
        for port, source in enumerate(inputs if told is None else (*inputs, told)):
            broadcast = source == told
            self.edges.append(Edge(f"{source}>{name}", source, name, port, broadcast, timeless=broadcast))
        return name

    def loading(self, name: str, turn: int = 0) -> str:
        """A source of a fixed number of rows, for which the others wait, but those that load before it."""
        intake = partial(LightIntake, self.random.randrange(1000), 2, self.random.choice((0, 3, 30)), 40)
        self.loads[name] = turn
        return self.node(name, "source", intake)

    def source(self, name: str) -> str:
        splits = self.splits[name] = self.random.choice((1, 2, 3))
        salt, keys = self.random.randrange(1000), self.random.choice((2, 5, 40))
        idle_ms = self.random.choice((10, 40)) if splits > 1 and self.random.random() < 0.2 else None
        supply = self.supplies[name] = Supply()
        intake = partial(LightIntake, salt, splits, 0, keys, idle_ms=idle_ms, supply=supply)
        return self.node(name, "source", intake)

    def sink(self, name: str, *inputs: str) -> str:
        return self.node(name, "sink", LightOutlet, *inputs)

    def graph(self) -> Graph:
        nodes: dict[str, Node] = {}
        for name, (kind, make) in self.nodes.items():
            targets = [e for e in self.edges if e.source == name]
            routes = {e.name: local if self.nodes[e.target][0] == "sink" else by_key for e in targets}
            made = make if kind == "sink" else partial(make, routes=routes)
            start = 1 if kind == "sink" else self.random.choice((1, 1, 2))
            last = max(self.loads.values(), default=-1) + 1 if kind == "source" else 0
            turn = self.loads.get(name, last)
            nodes[name] = Node(name, kind, made, start=start, loads=name in self.loads, turn=turn)
        return Graph(nodes, tuple(self.edges))


def draw_flow(random: Random) -> DrawnFlow:
    """A flow by the seed."""
    b = _Builder(random)
    keys = random.choice((3, 17, 60))
    chained = partial(Chained, keys=keys)
    shapes = ("chain", "rekey", "two-inputs", "diamond", "windows", "timers", "tables", "broadcast")
    shape = random.choice(shapes)
    if shape == "chain":
        b.sink("out", b.node("a", "operator", chained, b.source("s")))
    elif shape == "rekey":
        a = b.node("a", "operator", chained, b.source("s"))
        b.sink("out", b.node("b", "operator", chained, a))
    elif shape == "two-inputs":
        b.sink("out", b.node("a", "operator", chained, b.source("s"), b.source("t")))
    elif shape == "tables":
        tables = [b.loading("t"), b.loading("u", random.choice((0, 1)))] if random.random() < 0.5 else [b.loading("t")]
        b.sink("out", b.node("a", "operator", chained, *tables, b.source("s")))
    elif shape == "diamond":
        s = b.source("s")
        a, c = b.node("a", "operator", chained, s), b.node("b", "operator", Timed, s)
        b.sink("out", b.node("c", "operator", chained, a, c))
    elif shape == "windows":
        a = b.node("a", "operator", chained, b.source("s"))
        b.sink("out", b.node("w", "operator", Windowed, a))
    elif shape == "broadcast":
        informed = partial(Informed, keys=keys)
        told = b.node("t", "operator", chained, b.source("news")) if random.random() < 0.5 else b.source("t")
        b.sink("out", b.node("b", "operator", chained, b.node("a", "operator", informed, b.source("s"), told=told)))
    else:
        w = b.node("w", "operator", Windowed, b.source("s"), b.source("t"))
        b.sink("out", b.node("z", "operator", Timed, w), w)
    return DrawnFlow(shape, b.graph(), b.supplies, b.splits)
