"""`aggregate` and `window` as vertices: what they check, what they give."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from operators.aggregate import Aggregate
from operators.aggregates import Spec
from operators.step import DEAD_LETTERS
from operators.window import TumblingWindow
from seep.flow.keyed import hint_of, key_of, ready, refuse_clash
from seep.flow.logical import Input, Tap, Time
from seep.flow.windows import Tumbling

if TYPE_CHECKING:
    from seep.flow.stream import Stream


def aggregate(stream: Stream, emit: str, aggregates: dict[str, Spec]) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "aggregate")
    refuse_clash(keys, tuple(aggregates))
    wanted = stream.time is not None and any(spec.reads_time for spec in aggregates.values())
    timed, column = stream.timed() if wanted else (stream, None)
    arguments = {
        "keys": keys,
        "schema": timed.schema,
        "aggregates": aggregates,
        "emit": emit,
        "time_column": column,
    }
    schema = Aggregate(**arguments).schema
    inputs = (Input(timed.lineage, keys, timed.schema),)
    make = partial(ready, Aggregate, arguments)
    vertex = stream._operator("aggregate", make, {"out": schema}, inputs, hint_of("aggregate", keys))
    kind = Table if emit == "update" else Stream
    return kind(stream.flow, Tap(vertex, "out"), schema, keys)


def window(stream: Stream, window: Tumbling, emit: str, names: tuple[str, str], aggregates: dict[str, Spec]) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "window")
    refuse_clash((*keys, *names), tuple(aggregates))
    timed, column = (stream, None) if window.by_arrival else stream.timed()
    arguments = {
        "keys": keys,
        "schema": timed.schema,
        "time_column": column,
        "size_us": window.size_us,
        "offset_us": window.offset_us,
        "names": tuple(names),
        "aggregates": aggregates,
        "emit": emit,
        "by_arrival": window.by_arrival,
    }
    schema = TumblingWindow(**arguments).schema
    outputs = {"out": schema, "late": timed.schema, "errors": DEAD_LETTERS}
    inputs = (Input(timed.lineage, keys, timed.schema),)
    vertex = stream._operator(
        "window", partial(ready, TumblingWindow, arguments), outputs, inputs, hint_of("window", keys)
    )
    if emit == "update":
        return Table(stream.flow, Tap(vertex, "out"), schema, (*keys, *names))
    # A window's row is in the window: its time is the last moment before the end.
    return Stream(stream.flow, Tap(vertex, "out"), schema, keys, Time(names[1], "us", -1))
