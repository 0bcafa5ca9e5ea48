"""`aggregate` and `window` as vertices: what they check, what they give."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from operators.aggregate import Aggregate
from operators.aggregates import Spec
from operators.copying import CopyingWindow
from operators.count_window import RowsWindow
from operators.panes import unmergeable
from operators.session import SessionWindow
from operators.sliding import SlidingWindow
from operators.step import DEAD_LETTERS
from operators.window import TumblingWindow
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of, named, refuse_change, refuse_clash
from seep.flow.logical import Input, Tap, Time
from seep.flow.windows import CountWindow, Every, Session, Sliding, Tumbling, Window
from seep.model.schema import refuse_names

if TYPE_CHECKING:
    from seep.flow.stream import Stream


def aggregate(stream: Stream, emit: str, aggregates: dict[str, Spec], on_error: str) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "aggregate")
    refuse_clash(keys, tuple(aggregates))
    if emit == "update":
        refuse_change(keys)
    wanted = stream.time is not None and any(spec.reads_time for spec in aggregates.values())
    timed, column = stream.timed() if wanted else (stream, None)
    arguments = {
        "keys": keys,
        "schema": timed.schema,
        "aggregates": aggregates,
        "emit": emit,
        "time_column": column,
        "on_error": on_error,
    }
    schemas = Aggregate(**arguments).schemas
    inputs = (Input(timed.lineage, keys, timed.schema),)
    make = partial(named, Aggregate, arguments)
    vertex = stream._operator("aggregate", make, schemas, inputs, hint_of("aggregate", keys))
    kind = Table if emit == "update" else Stream
    return kind(stream.flow, Tap(vertex, "out"), schemas["out"], keys)


def window(
    stream: Stream,
    window: Window,
    emit: str | Every,
    names: Any,
    aggregates: dict[str, Spec],
    on_error: str,
) -> Any:
    from seep.flow.stream import Stream
    from seep.flow.table import Table

    keys = key_of(stream, "window")
    if not isinstance(names, tuple | list) or len({*keys, *names}) != len(keys) + 2:
        raise Misuse(f"names={names!r}; give two names, for start and end, that no key column has")
    refuse_names(names)
    refuse_clash((*keys, *names), tuple(aggregates))
    if emit != "close":
        refuse_change((*keys, *names))
    if isinstance(window, CountWindow) and emit != "close":
        raise Misuse("windows by count may have equal times, which would name one row of a Table; use emit='close'")
    head, timed, shape = _kind(stream, window, aggregates)
    arguments = {"keys": keys, "schema": timed.schema, "names": tuple(names), "aggregates": aggregates, **shape}
    arguments["on_error"] = on_error
    arguments |= {"emit": "update", "period_us": emit.period_us} if isinstance(emit, Every) else {"emit": emit}
    schemas = head(**arguments).schemas
    outputs = {"out": schemas["out"], "errors": DEAD_LETTERS}
    if "late" in schemas:
        outputs["late"] = timed.schema
    inputs = (Input(timed.lineage, keys, timed.schema),)
    vertex = stream._operator("window", partial(named, head, arguments), outputs, inputs, hint_of("window", keys))
    if isinstance(window, Session) and window.inclusive:
        # It closes when the watermark has passed its end, so its row may be a moment behind the watermark.
        vertex.settings["holds_us"] = 1
    if emit != "close":
        return Table(stream.flow, Tap(vertex, "out"), schemas["out"], (*keys, *names))
    # A window's row is in the window: its time is the last moment before the end; of a count window, whose end is the
    # time of its last row, that one, which no watermark has passed when the row that fills it comes.
    before_us = 0 if isinstance(window, CountWindow) else -1
    return Stream(stream.flow, Tap(vertex, "out"), schemas["out"], keys, Time(names[1], "us", before_us))


def _kind(stream: Stream, window: Window, aggregates: dict[str, Spec]) -> tuple[Any, Stream, dict[str, Any]]:
    """The operator of this kind of window, the stream that it reads, and what it must know."""
    match window:
        case Tumbling() | Sliding():
            timed, column = (stream, None) if window.by_arrival else stream.timed()
            shape = {
                "time_column": column,
                "size_us": window.size_us,
                "offset_us": window.offset_us,
                "by_arrival": window.by_arrival,
            }
            if isinstance(window, Tumbling) or window.size_us == window.every_us:
                return TumblingWindow, timed, shape
            shape["every_us"] = window.every_us
            return CopyingWindow if unmergeable(timed.schema, aggregates) else SlidingWindow, timed, shape
        case Session():
            timed, column = stream.timed()
            shape = {"time_column": column, "gap_us": window.gap_us, "inclusive": window.inclusive}
            return SessionWindow, timed, shape
        case CountWindow():
            timed, column = (stream, None) if stream.time is None else stream.timed()
            return RowsWindow, timed, {"time_column": column, "rows": window.rows, "every": window.every}
    raise Misuse(f"{window!r} is no window; give tumbling('1m'), sliding('5m', every='10s'), ...")
