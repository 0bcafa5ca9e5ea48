"""Tables first: which sources fill Tables and end, and which therefore wait."""

from __future__ import annotations

from seep.flow.build import Flow
from seep.flow.logical import Vertex, chains


def loading_sources(flow: Flow) -> set[Vertex]:
    """The sources of every Table whose rows all come from bounded ones."""
    found: set[Vertex] = set()
    for vertex in flow.vertices:
        if vertex.verb == "table":
            sources = _sources(vertex)
            if not any(getattr(source.make, "endless", False) for source in sources):
                found |= sources
    return found


def _sources(vertex: Vertex) -> set[Vertex]:
    if vertex.kind == "source":
        return {vertex}
    return {source for given in vertex.inputs for way in chains(given.lineage) for source in _sources(way.tap.vertex)}
