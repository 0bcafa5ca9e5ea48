"""Tables first: which sources fill Tables and end, and in which turn each source may begin."""

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


def turns_of(flow: Flow, loading: set[Vertex]) -> dict[Vertex, int]:
    """The turn of each source. One that loads and has rows that are looked up in Tables comes after those that fill
    them, unless they wait for it, too; all that load nothing come last."""
    before: dict[Vertex, set[Vertex]] = {source: set() for source in loading}
    for vertex in flow.vertices:
        if vertex.verb == "join_table":
            filled = sources_of(vertex.inputs[:1]) & loading
            for source in _sending(vertex.inputs[1:]) & loading:
                before[source] |= filled - {source}
    for middle in loading:  # those before them, too
        for source in loading:
            if middle in before[source]:
                before[source] |= before[middle]
    plain = {source: {one for one in earlier if source not in before[one]} for source, earlier in before.items()}
    turns = dict.fromkeys(loading, 0)
    for source in sorted(loading, key=lambda source: len(plain[source])):  # who comes after more comes after these
        turns[source] = max((turns[one] + 1 for one in plain[source]), default=0)
    last = max(turns.values(), default=-1) + 1
    return {vertex: turns.get(vertex, last) for vertex in flow.vertices if vertex.kind == "source"}


def _sending(inputs: tuple[Input, ...]) -> set[Vertex]:
    """The sources whose rows come in here; not those that were only looked up on the way."""
    found: set[Vertex] = set()
    for vertex in (way.tap.vertex for given in inputs for way in chains(given.lineage)):
        passed = vertex.inputs[1:] if vertex.verb == "join_table" else vertex.inputs
        found |= {vertex} if vertex.kind == "source" else _sending(passed)
    return found


def sources_of(inputs: tuple[Input, ...], timed: bool = False) -> set[Vertex]:
    """Every source that something of these inputs comes from; ``timed``: those whose watermark they wait for."""
    found: set[Vertex] = set()
    for vertex in (
        way.tap.vertex for given in inputs if not (timed and given.timeless) for way in chains(given.lineage)
    ):
        found |= {vertex} if vertex.kind == "source" else sources_of(vertex.inputs, timed)
    return found
