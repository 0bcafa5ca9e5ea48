"""Everything that can be said of a flow before it runs.

Most mistakes are refused by the verb that makes them (unknown column, float key, an expression that looks at
neighbours, a bad duration); what only shows in the whole flow is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from operators.aggregate import Aggregate
from operators.apply import Operator, states_of
from operators.cells import NEVER
from operators.collected import Distinct, Quantile
from operators.dedupe import Dedupe
from operators.listed import Rows
from operators.states import ListState, MapState, SetState
from seep.errors import Misuse
from seep.flow.build import Flow
from seep.flow.checked_times import JOINS, head_of
from seep.flow.compile import compile_flow, name_vertices
from seep.flow.loading import sources_of
from seep.flow.logical import Vertex, chains
from seep.model.schema import physical
from seep.partition.contract import Graph
from seep.runtime.stores.files import escape

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    level: str
    """``error``: the flow does not start; ``warning``: it does."""
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"


def check(flow: Flow) -> list[Finding]:
    """All findings, errors first."""
    try:
        graph = compile_flow(flow)
    except Misuse as error:
        return [Finding(ERROR, str(error))]
    findings = [Finding(ERROR, message) for message in graph_problems(graph)]
    findings += [Finding(WARNING, message) for message in _warnings(flow)]
    return findings


def runnable(flow: Flow) -> Graph:
    """The plan of a flow that may start; refuses the others."""
    graph = compile_flow(flow)
    if not any(node.kind == "sink" for node in graph.nodes.values()):
        raise Misuse(f"{flow.place}: the flow {flow.name!r} has no sink; end a stream with .sink(..) or .collect(..)")
    for problem in graph_problems(graph):
        raise Misuse(f"{flow.place}: {problem}")
    return graph


def prepared(graph: Graph) -> Graph:
    """The plan with what its sources and sinks look up once, where a job starts: partitions, first offsets, names of
    their own. A job that is resumed goes on with what was found then."""
    nodes = {}
    for name, node in graph.nodes.items():
        ready = getattr(node.make, "prepared", None)
        nodes[name] = node if ready is None else replace(node, make=ready())
    return replace(graph, nodes=nodes)


def kept(graph: Graph, home: Path) -> Graph:
    """The plan with a directory for each source that keeps what it was sent."""
    nodes = {}
    for name, node in graph.nodes.items():
        keeping = getattr(node.make, "kept_in", None)
        nodes[name] = node if keeping is None else replace(node, make=keeping(home / escape(name)))
    return replace(graph, nodes=nodes)


def graph_problems(graph: Graph) -> Iterator[str]:
    """What makes a graph impossible to run, however it was made."""
    for name, node in graph.nodes.items():
        if node.kind != "source" and not graph.inputs(name):
            yield f"nobody feeds the {node.kind} {name!r}; connect it or leave it out"
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in graph.nodes:
                yield f"the edge {edge.name!r} names {end!r}, which is not there"
    cycle = _cycle(graph)
    if cycle:
        yield f"the flow goes round in a circle: {' -> '.join(cycle)}; cut it"


def _cycle(graph: Graph) -> list[str]:
    left = {name: {edge.source for edge in graph.inputs(name)} & set(graph.nodes) for name in graph.nodes}
    while True:
        free = [name for name, sources in left.items() if not sources]
        if not free:
            break
        for name in free:
            del left[name]
        for sources in left.values():
            sources.difference_update(free)
    if not left:
        return []
    # Everyone left has a sender that is left: walking back from anyone comes round.
    walk = [min(left)]
    while walk[-1] not in walk[:-1]:
        walk.append(min(left[walk[-1]]))
    return walk[walk.index(walk[-1]) :][::-1]


def _warnings(flow: Flow) -> Iterator[str]:
    names = name_vertices(flow)
    useful: set[Vertex] = set()
    for vertex in reversed(flow.vertices):
        if vertex.kind == "sink" or vertex in useful:
            useful.update(chain.tap.vertex for given in vertex.inputs for chain in chains(given.lineage))
    if not any(vertex.kind == "sink" for vertex in flow.vertices):
        yield f"{flow.place}: the flow {flow.name!r} has no sink; nothing of it will be seen"
    for vertex in flow.vertices:
        if vertex.kind != "sink" and vertex not in useful:
            yield f"{vertex.place}: no sink is reached from the {vertex.verb} {names[vertex]!r}"
        if vertex.stateful and vertex.name is None and vertex.owner is None:
            yield (
                f"{vertex.place}: the {vertex.verb} {names[vertex]!r} has state and no name of its own; "
                "give it .named(..), so that its state is found again when the flow changes"
            )
        kept = _kept_for_ever(vertex)
        if kept:
            yield f"{vertex.place}: the {vertex.verb} {names[vertex]!r} never drops its state: {kept}"


def _kept_for_ever(vertex: Vertex) -> str:
    """Why state of this operator only grows; empty when it does not."""
    head, made = head_of(vertex)
    sources = sources_of(vertex.inputs)
    endless = [source for source in sources if getattr(source.make, "endless", False)]
    # Bounded sources of no event time do no harm: at their end they let the watermark go.
    awaited = sources_of(vertex.inputs, timed=True)
    silent = sorted(str(source.name) for source in endless if source in awaited and "time" not in source.settings)
    if silent and (head in JOINS or (made.get("time_column") is not None and head is not Aggregate)):
        source = silent[0]
        return f"it waits for the watermark, which source {source!r} holds back (endless, no event time); give it time="
    if endless and head is Dedupe and made["ttl_ms"] is None:
        return "its source does not end, and every key is remembered; give a ttl="
    if endless and head is Aggregate:
        for name, spec in made["aggregates"].items():
            if type(spec.accumulator(physical(made["schema"]), made["time_column"])) in (Distinct, Quantile, Rows):
                return f"its source does not end, and {name} = {spec} keeps every value; use a window, or approx=True"
    operator = next(iter(getattr(vertex.make, "args", ())), None)
    if endless and isinstance(operator, Operator):
        for name, state in states_of(operator).items():
            if isinstance(state, ListState | MapState | SetState) and state.ttl_ms == NEVER:
                return (
                    f"its source does not end, and only its own code takes anything out of {name!r}; give that a ttl="
                )
    return ""
