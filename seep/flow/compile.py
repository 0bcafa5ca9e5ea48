"""A flow as a graph of physical nodes: names given, stateless verbs fused into the node before them, unions dissolved
into ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from operators.combine import why_not_halved
from operators.step import Step
from seep.errors import Misuse
from seep.flow.build import Flow
from seep.flow.combining import Sending, sending
from seep.flow.cycles import refuse_cycle
from seep.flow.fused import LogicPlan, Route, Tail, Tails
from seep.flow.grouped import refuse_halved, simplified
from seep.flow.grouping import Grouping, by
from seep.flow.intake import IntakePlan
from seep.flow.loading import loading_sources, turns_of
from seep.flow.logical import After, Chain, Stage, Vertex, chains
from seep.flow.outlet import OutletPlan
from seep.flow.pruning import prune
from seep.partition.contract import Edge, Graph, Node


def known_flow(given: Any) -> Flow:
    if not isinstance(given, Flow):
        raise Misuse(f"{given!r} is no Flow; give the one that the streams were made from, not a stream")
    return given


def compile_flow(flow: Flow) -> Graph:
    """The plan a job runs. Refuses a flow that could not run."""
    flow = known_flow(flow)
    if not any(vertex.kind == "source" for vertex in flow.vertices):
        raise Misuse(f"{flow.place}: the flow {flow.name!r} has no source")
    names = name_vertices(flow)
    refuse_cycle(flow.vertices, names)
    inputs = simplified(flow.vertices)
    ways = {vertex: [tuple(chains(one.lineage)) for one in given] for vertex, given in inputs.items()}
    all_ways = {vertex: list(chain.from_iterable(found)) for vertex, found in ways.items()}
    used: dict[Vertex, set[str]] = {vertex: set() for vertex in inputs}
    for way in chain.from_iterable(all_ways.values()):
        used[way.tap.vertex].add(way.tap.output)
    plans = {vertex: sending(vertex, all_ways[vertex], used[vertex]) for vertex in inputs}
    steps = prune(inputs, ways, plans)
    edges: list[Edge] = []
    ends: dict[Vertex, list[tuple[Chain, Route]]] = {vertex: [] for vertex in inputs}
    ports: dict[Vertex, tuple[int, ...]] = {}
    groupings: dict[Vertex, tuple[Grouping, ...]] = {}
    for vertex, plan in plans.items():
        numbers: list[int] = []
        groupings[vertex] = tuple(given.grouping or by(given.keys) for given in inputs[vertex])
        for number, (given, found) in enumerate(zip(inputs[vertex], ways[vertex], strict=True)):
            schema = plan.schemas[number] if plan.schemas else given.schema
            halved = why_not_halved(plan.combine.schema, plan.combine.aggregates) if plan.combine is not None else ""
            if given.keys is not None and (plan.combine is None or halved):
                refuse_halved(vertex, given, found, plan.reason or halved)
            for way in found:
                sender, target, port = names[way.tap.vertex], names[vertex], len(numbers)
                holds_us = way.tap.vertex.settings.get("holds_us", 0)
                edge = Edge(
                    f"{sender}->{target}:{port}", sender, target, port, given.broadcast, holds_us, given.timeless
                )
                edges.append(edge)
                ends[way.tap.vertex].append((way, Route(edge.name, groupings[vertex][number], schema, plan.combine)))
                numbers.append(number)
        ports[vertex] = tuple(numbers)
    nodes = {
        names[vertex]: _node(
            names[vertex],
            vertex,
            plans[vertex],
            ports[vertex],
            groupings[vertex],
            tails_of(names, vertex, ends[vertex], steps),
            flow.guarantee,
        )
        for vertex in inputs
    }
    loading = loading_sources(flow)
    for vertex, turn in turns_of(flow, loading).items():
        nodes[names[vertex]] = replace(nodes[names[vertex]], loads=vertex in loading, turn=turn)
    order = {name: at for at, name in enumerate(nodes)}
    return Graph(nodes, tuple(sorted(edges, key=lambda edge: (order[edge.source], order[edge.target], edge.port))))


def name_vertices(flow: Flow) -> dict[Vertex, str]:
    """Given names, and for the others verb-keys: ``window-store``, then ``window-store-2``."""
    names = {vertex: vertex.name for vertex in flow.vertices if vertex.name is not None}
    taken = set(names.values())
    for vertex in sorted(flow.vertices, key=lambda vertex: vertex.owner is not None):
        if vertex not in names:
            hint = vertex.hint if vertex.owner is None else f"{names[vertex.owner]}-{vertex.hint}"
            name, number = hint, 1
            while name in taken:
                number += 1
                name = f"{hint}-{number}"
            names[vertex] = name
            taken.add(name)
    return names


def tails_of(
    names: Mapping[Vertex, str], vertex: Vertex, ends: Iterable[tuple[Chain, Route]], steps: Mapping[Stage, Step]
) -> Tails:
    """The tree of steps behind a node: chains with a common beginning share it. ``steps``: in place of some stages'
    own."""
    by_output: dict[str, list[tuple[tuple[After, ...], Route]]] = {}
    for way, route in ends:
        by_output.setdefault(way.tap.output, []).append((way.stages, route))
    return {output: _branches(names, vertex, rest, steps) for output, rest in by_output.items()}


def _branches(
    names: Mapping[Vertex, str],
    vertex: Vertex,
    rest: list[tuple[tuple[After, ...], Route]],
    steps: Mapping[Stage, Step],
) -> tuple[Tail | Route, ...]:
    found: list[Tail | Route] = [route for stages, route in rest if not stages]
    by_stage: dict[Any, list[tuple[tuple[After, ...], Route]]] = {}
    for stages, route in rest:
        if stages:
            by_stage.setdefault(stages[0].stage, []).append((stages, route))
    for stage, group in by_stage.items():
        after: dict[str, list[tuple[tuple[After, ...], Route]]] = {}
        for stages, route in group:
            after.setdefault(stages[0].output, []).append((stages[1:], route))
        label = stage.name or (f"{names[vertex]}.{stage.verb}" if stage.owner is None else names[stage.owner])
        behind = {output: _branches(names, vertex, more, steps) for output, more in after.items()}
        found.append(Tail(label, steps.get(stage, stage.step), behind))
    return tuple(found)


def _node(
    name: str,
    vertex: Vertex,
    plan: Sending,
    ports: tuple[int, ...],
    groupings: tuple[Grouping, ...],
    tails: Tails,
    guarantee: str,
) -> Node:
    replicated = frozenset(port for port, number in enumerate(ports) if vertex.inputs[number].broadcast)
    make: Any
    # All columns that come in, also those that nobody reads.
    columns = pa.schema([field for given in vertex.inputs for field in given.schema])
    settings = {"verb": vertex.verb, "columns": columns, **vertex.settings}
    if vertex.kind == "source":
        make = IntakePlan(
            name,
            vertex.make,
            settings.pop("lateness_us", 0),
            settings.pop("idle_ms", None),
            tails,
        )
        settings["schema"] = vertex.outputs["out"]
    elif vertex.kind == "sink":
        make = OutletPlan(name, vertex.make, settings["schema"], guarantee, settings.get("table_keys"))
    else:
        make = LogicPlan(name, plan.make, ports, tails, plan.combine, plan.reason, groupings, plan.unread, replicated)
    scale = (vertex.start, vertex.minimum, vertex.maximum)
    return Node(name, vertex.kind, make, *scale, settings, policy=vertex.policy)
