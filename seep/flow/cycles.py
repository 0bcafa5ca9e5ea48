"""A flow has no cycle: each epoch passes every operator once. The verbs cannot build one; a graph made by hand can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seep.errors import Misuse
from seep.flow.logical import Vertex, chains


def refuse_cycle(vertices: Sequence[Vertex], names: Mapping[Vertex, str]) -> None:
    done: set[Vertex] = set()
    for vertex in vertices:
        _visit(vertex, [], done, names)


def _visit(vertex: Vertex, way: list[Vertex], done: set[Vertex], names: Mapping[Vertex, str]) -> None:
    if vertex in way:
        # Walked against the rows: told in their direction.
        round_trip = [*way[way.index(vertex) :], vertex][::-1]
        raise Misuse(
            f"{vertex.place}: the flow has a cycle: {' -> '.join(names[one] for one in round_trip)}; cut it there"
        )
    if vertex in done:
        return
    for given in vertex.inputs:
        for chain in chains(given.lineage):
            _visit(chain.tap.vertex, [*way, vertex], done, names)
    done.add(vertex)
