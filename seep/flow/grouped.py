"""The verbs that group otherwise than by key, as vertices.

What follows a grouping runs where the rows were sent, in a node of its own that can be named and scaled. Where that is
an operator or a sink anyway, the node is left out: the operator's own edge is grouped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from operators.direct import TARGET, Direct
from operators.forward import Forward
from seep.errors import Misuse
from seep.flow.grouping import GROUPING, Directed, Grouping, Local, TwoChoices
from seep.flow.keyed import hint_of, key_of, ready
from seep.flow.logical import After, Chain, Input, Lineage, Stage, Tap, Vertex, chains
from seep.flow.place import place

if TYPE_CHECKING:
    from seep.flow.stream import Stream


def grouped(stream: Stream, verb: str, grouping: Grouping) -> Tap:
    """The rows where they were sent."""
    return _vertex(stream, stream.lineage, verb, verb, grouping)


def halved(stream: Stream) -> Tap:
    """`two_choices`: a key's rows are in two places now."""
    keys = key_of(stream, "two_choices")
    return _vertex(stream, stream.lineage, "two_choices", hint_of("two_choices", keys), TwoChoices(keys))


def routed(stream: Stream, function: Callable[[Any], Any], on_error: str) -> tuple[Tap, Stage]:
    """The rows where they were sent, and the stage that runs the function."""
    if not callable(function):
        raise Misuse(f"{function!r} is no function; give one from a row to a key value")
    step = Direct("route", function, stream.schema.append(pa.field(TARGET, pa.uint16())), on_error)
    stage = Stage(stream.lineage, step, "route", place())
    return _vertex(stream, After(stage, "out"), "route", "route", Directed()), stage


def _vertex(stream: Stream, lineage: Lineage, verb: str, hint: str, grouping: Grouping) -> Tap:
    make = partial(ready, Forward, {"schema": stream.schema})
    inputs = (Input(lineage, None, stream.schema, grouping),)
    vertex = stream._operator(verb, make, {"out": stream.schema}, inputs, hint, stateful=False)
    vertex.settings[GROUPING] = grouping
    return Tap(vertex, "out")


def simplified(vertices: Iterable[Vertex]) -> dict[Vertex, tuple[Input, ...]]:
    """The vertices that will run, with their inputs: groupings whose node would only pass rows on are left out."""
    inputs = {vertex: vertex.inputs for vertex in vertices}
    taps = Counter(way.tap.vertex for given in inputs.values() for one in given for way in chains(one.lineage))
    needless = {vertex for vertex in inputs if _plain(vertex) and taps[vertex] == 1}
    for vertex, given in inputs.items():
        inputs[vertex] = tuple(_direct(one, needless) for one in given)
    used = {way.tap.vertex for given in inputs.values() for one in given for way in chains(one.lineage)}
    return {vertex: given for vertex, given in inputs.items() if vertex not in needless or vertex in used}


def _plain(vertex: Vertex) -> bool:
    """Nobody has asked for this node by name or size."""
    scale = (vertex.start, vertex.minimum, vertex.maximum, vertex.policy)
    return GROUPING in vertex.settings and vertex.name is None and scale == (1, 1, 16, None)


def _direct(given: Input, needless: set[Vertex]) -> Input:
    while isinstance(given.lineage, Tap) and given.lineage.vertex in needless:
        before = given.lineage.vertex.inputs[0]
        if given.keys is None and isinstance(given.grouping, Local | None):
            given = replace(given, lineage=before.lineage, grouping=before.grouping)
        elif isinstance(before.grouping, TwoChoices):
            break
        else:
            # Whatever goes by key, or is grouped again, goes there from anywhere.
            given = replace(given, lineage=before.lineage)
    return given


def refuse_halved(vertex: Vertex, given: Input, ways: Iterable[Chain], why_not: str) -> None:
    """A verb that needs all rows of a key must not stand behind `two_choices`."""
    for way in ways:
        grouping = way.tap.vertex.settings.get(GROUPING)
        if isinstance(grouping, TwoChoices) and grouping.keys == given.keys:
            why = f"{vertex.verb}: {why_not}" if why_not else f"{vertex.verb} needs all rows of a key"
            raise Misuse(f"{vertex.place}: two_choices() suits aggregates that merge exactly; {why}; leave it out")
