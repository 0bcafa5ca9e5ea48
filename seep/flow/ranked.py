"""`top`, `dedupe` and `reduce` as vertices: what they check, what they give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from operators.dedupe import Dedupe
from operators.ranking import RANK, check_ranking
from operators.reduce import Reduce
from operators.stateless import Project
from operators.step import DEAD_LETTERS
from operators.top import PLACE, Top
from operators.window_top import WindowTop
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of, named, ready
from seep.flow.logical import Chain, Input, Tap, chains
from seep.model.arrow import CHANGE
from seep.model.duration import positive_microseconds
from seep.model.keyspace import check_keys
from seep.model.schema import TIMESTAMP

if TYPE_CHECKING:
    from seep.flow.stream import Stream
    from seep.flow.table import Table


def top(stream: Stream, n: int, by: tuple[Any, ...], descending: bool, ties: str) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "top")
    check_ranking(stream.schema, n, by, descending, ties)
    windows = windows_of(stream)
    primary = PLACE if ties == "rank" else RANK
    for name in (RANK,) if windows else (RANK, primary, CHANGE):
        if name in stream.schema.names:
            raise Misuse(f"the stream has a column {name!r}, which top needs itself; rename or drop it")
    arguments: dict[str, Any] = {
        "keys": keys,
        "schema": stream.schema,
        "n": n,
        "by": by,
        "descending": descending,
        "ties": ties,
    }
    inputs = (Input(stream.lineage, keys, stream.schema),)
    if windows:
        arguments["windows"] = windows
    head: Any = WindowTop if windows else Top
    schema = head(**arguments).schema
    make = partial(ready, head, arguments)
    vertex = stream._operator("top", make, {"out": schema}, inputs, hint_of("top", keys), stateful=not windows)
    if windows:
        return Stream(stream.flow, Tap(vertex, "out"), schema, keys, stream.time)
    return Table(stream.flow, Tap(vertex, "out"), schema, (*keys, primary))


def windows_of(stream: Stream) -> tuple[str, ...]:
    """The window columns of a stream of closed windows, its end first; empty when it is none, or has lost them.

    A window's rows all come in the epoch in which it closes, and verbs without state keep them there."""
    ways = list(chains(stream.lineage))
    if len(ways) != 1:
        return ()
    vertex = ways[0].tap.vertex
    made = vertex.make.args[1] if isinstance(vertex.make, partial) and len(vertex.make.args) > 1 else {}
    if ways[0].tap.output != "out" or CHANGE in vertex.outputs["out"].names:
        return ()
    names = tuple(reversed(made.get("names", ()))) if vertex.verb == "window" else made.get("windows", ())
    followed = [name for name in (_followed(ways[0], name) for name in names) if name is not None]
    schema = stream.schema
    return tuple(name for name in followed if name in schema.names and schema.field(name).type == TIMESTAMP)


def _followed(way: Chain, name: str | None) -> str | None:
    """What a column is called at the end; behind a function, a column of its name is taken for it."""
    for after in way.stages:
        step = after.stage.step
        if isinstance(step, Project):
            name = step.copies.get(name) if name is not None else None
        elif after.output == "errors":
            return None
    return name


def dedupe(stream: Stream, columns: tuple[str, ...], ttl: str | timedelta | None) -> Stream:
    from seep.flow.stream import Stream

    if not columns and stream.keys is None:
        raise Misuse("dedupe needs columns, or key_by(..) before it")
    keys = columns or stream.keys or ()
    check_keys(stream.schema, keys)
    # Rounded up: nothing is forgotten before its time.
    ttl_ms = None if ttl is None else -(-positive_microseconds(ttl) // 1000)
    arguments = {"keys": keys, "schema": stream.schema, "ttl_ms": ttl_ms}
    schema: pa.Schema = Dedupe(**arguments).schema
    inputs = (Input(stream.lineage, keys, stream.schema),)
    make = partial(ready, Dedupe, arguments)
    vertex = stream._operator("dedupe", make, {"out": schema}, inputs, hint_of("dedupe", keys))
    return Stream(stream.flow, Tap(vertex, "out"), schema, stream.keys, stream.time)


def reduce(stream: Stream, function: Callable[[Any, Any], Any], on_error: str) -> Table:
    from seep.flow.table import Table

    keys = key_of(stream, "reduce")
    if not callable(function):
        raise Misuse(f"{function!r} is no function; give fn(folded, row) -> row")
    if CHANGE in stream.schema.names:
        raise Misuse(f"the stream has a column {CHANGE!r}, which a Table needs itself; rename it")
    arguments = {"keys": keys, "schema": stream.schema, "function": function, "on_error": on_error}
    schema = Reduce(**arguments).schema
    inputs = (Input(stream.lineage, keys, stream.schema),)
    outputs = {"out": schema, "errors": DEAD_LETTERS}
    vertex = stream._operator("reduce", partial(named, Reduce, arguments), outputs, inputs, hint_of("reduce", keys))
    return Table(stream.flow, Tap(vertex, "out"), schema, keys)
