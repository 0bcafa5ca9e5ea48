"""Flow: what a user declares. Building one runs nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from operators.stateless import EventTime
from operators.step import DEAD_LETTERS
from seep.connectors.contract import AT_MOST_ONCE
from seep.connectors.own import connector_of
from seep.errors import Misuse
from seep.flow.logical import After, Merge, Stage, Tap, Vertex
from seep.flow.place import at_place, place
from seep.flow.stream import Stream
from seep.flow.timed import event_time_of, time_settings
from seep.model.duration import microseconds, positive_microseconds
from seep.model.schema import refuse_columns
from seep.model.settings import Settings

GUARANTEES = ("exactly-once", "at-least-once", AT_MOST_ONCE)
"""How often an effect outside is there after a failure: once; what is published to Kafka perhaps twice; perhaps not at
all, and never twice. State is exact in all of them."""


class Flow:
    """What a user declares: sources, operators and sinks, and the streams between them. Building one runs nothing.

    ``epoch`` is how often rows are passed on together, ``checkpoint`` how often state is saved. ``guarantee`` says how
    often others see what a sink shows after a failure: ``"exactly-once"``, ``"at-least-once"`` or ``"at-most-once"``.

    >>> import seep
    >>> flow = Flow("words")
    >>> words = flow.source("words", seep.MemorySource([{"word": "a"}, {"word": "b"}, {"word": "a"}]))
    >>> words.key_by("word").aggregate(n=seep.count()).collect("counts")
    """

    def __init__(
        self,
        name: str,
        epoch: str | timedelta = "50ms",
        checkpoint: str | timedelta = "2s",
        guarantee: str = "exactly-once",
    ) -> None:
        with at_place("Flow"):
            check_name(name)
            if guarantee not in GUARANTEES:
                raise Misuse(f"guarantee={guarantee!r}; there are {', '.join(map(repr, GUARANTEES))}")
            self.name = name
            self.epoch_us = positive_microseconds(epoch)
            self.checkpoint_us = positive_microseconds(checkpoint)
        self.guarantee = guarantee
        self.place = place()
        self.vertices: list[Vertex] = []
        """In the order they were declared, which is a topological one."""
        self._names: dict[str, Vertex] = {}

    @property
    def settings(self) -> Settings:
        return Settings(epoch_ms=self.epoch_us / 1000, checkpoint_ms=self.checkpoint_us / 1000)

    def source(
        self,
        name: str,
        source: Any,
        time: str | tuple[str, str] | None = None,
        lateness: str | timedelta = "0s",
        idle: str | timedelta | None = None,
    ) -> Stream:
        """A stream of what the source gives; ``time`` is the column of event time (``("ts", "ms")`` for an integer).

        ``lateness`` is how much later than the newest row another may come and still be in time. With ``idle``, a part
        of the source (a file, a partition of a topic) that has been silent for so long holds the others up no longer.
        """
        with at_place("source"):
            source = connector_of(source)
            if not hasattr(source, "read") or not hasattr(source, "schema"):
                raise Misuse(f"{source!r} is no source")
            if time is None and (microseconds(lateness) or idle is not None):
                raise Misuse("lateness= and idle= belong to event time; give time= as well")
            schema = source.schema
            refuse_columns(schema)
            vertex = Vertex("source", "source", place(), {"out": schema, "errors": DEAD_LETTERS}, source)
            stream = Stream(self, Tap(vertex, "out"), schema)
            if time is not None:
                bound = event_time_of(schema, time)
                vertex.settings |= time_settings(bound, lateness, idle)
                step = EventTime("event_time", bound.column, bound.unit, schema)
                stage = Stage(stream.lineage, step, "source", place(), owner=vertex)
                stream = SourceStream(self, After(stage, "out"), schema, None, bound)
            self.claim(name, vertex)
            self.add(vertex)
            return stream

    def add(self, vertex: Vertex) -> None:
        self.vertices.append(vertex)

    def claim(self, name: str, vertex: Vertex) -> None:
        """Give a vertex its name; two of one name are refused."""
        check_name(name)
        other = self._names.get(name)
        if other is not None and other is not vertex:
            raise Misuse(f"the name {name!r} is taken by the {other.verb} of {other.place}")
        vertex.name = name
        self._names[name] = vertex

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"


def check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or "/" in name or "->" in name or not name.isprintable():
        raise Misuse(f"{name!r} is no name; give some letters, in one line, without '/' and '->'")


class SourceStream(Stream):
    """A source with event time: the check of times runs inside it, and is not a verb of its own."""

    @property
    def errors(self) -> Stream:
        """What the source could not read, and rows whose time is null or out of range."""
        assert isinstance(self.lineage, After)
        stage = self.lineage.stage
        assert stage.owner is not None
        return Stream(self.flow, Merge((Tap(stage.owner, "errors"), After(stage, "errors"))), DEAD_LETTERS)
