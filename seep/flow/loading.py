"""Tables first: which sources fill Tables and end, and which therefore wait."""

from __future__ import annotations

from seep.flow.build import Flow
from seep.flow.logical import Input, Vertex, chains


def loading_sources(flow: Flow) -> set[Vertex]:
    """The sources of every `table()`, and of every Table that rows are joined with, if all of them are bounded."""
    found: set[Vertex] = set()
    for vertex in flow.vertices:
        # The first input of join_table is the Table, whatever made it, or a stream that is broadcast and held as one.
        filled = {"table": vertex.inputs, "join_table": vertex.inputs[:1]}
        sources = sources_of(filled.get(vertex.verb, ()))
        if not any(getattr(source.make, "endless", False) for source in sources):
            found |= sources
    return found


def sources_of(inputs: tuple[Input, ...], timed: bool = False) -> set[Vertex]:
    """Every source that something of these inputs comes from; ``timed``: those whose watermark they wait for."""
    found: set[Vertex] = set()
    for vertex in (
        way.tap.vertex for given in inputs if not (timed and given.timeless) for way in chains(given.lineage)
    ):
        found |= {vertex} if vertex.kind == "source" else sources_of(vertex.inputs, timed)
    return found
