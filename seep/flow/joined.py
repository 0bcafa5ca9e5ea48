"""`join` as a vertex: what it checks, what its columns are called, and which of them are its time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from operators.join import IntervalJoin
from operators.joining import HOW, Join, JoinInput
from operators.window_join import WindowJoin
from seep.errors import Misuse
from seep.flow.keyed import hint_of, key_of
from seep.flow.logical import Input, Tap, Time
from seep.flow.windows import Tumbling
from seep.model.duration import microseconds

if TYPE_CHECKING:
    from seep.flow.stream import Stream

Within = str | timedelta | tuple[str | timedelta, str | timedelta]


def made(head: Any, arguments: dict[str, Any], name: str, ports: tuple[int, ...]) -> Any:
    return head(**arguments, name=name, ports=ports)


def join(left: Stream, right: Stream, within: Within | None, window: Tumbling | None, how: Any, suffix: str) -> Stream:
    from seep.flow.stream import Stream

    keys, right_keys = key_of(left, "join"), key_of(right, "join")
    kinds = [[one.schema.field(key).type for key in one.keys or ()] for one in (left, right)]
    if kinds[0] != kinds[1]:
        raise Misuse(f"the keys pair by position and must be of equal types: {_shown(left)} and {_shown(right)}")
    if not isinstance(how, str) or how not in HOW:
        raise Misuse(f"how={how!r}; choose one of {', '.join(HOW)}")
    if not isinstance(suffix, str):
        raise Misuse(f"suffix={suffix!r}; give text, such as '_right'")
    _refuse_filled_times(left, right, how)
    renamed = _right_names(left, right, suffix)
    timed = [one.timed() for one in (left, right)]
    columns = (*keys, *(name for name in left.schema.names if name not in keys))
    inputs = [
        JoinInput(timed[0][0].schema, keys, timed[0][1], tuple((name, name) for name in columns)),
        JoinInput(timed[1][0].schema, right_keys, timed[1][1], tuple(renamed.items())),
    ]
    head, arguments = _kind(within, window)
    arguments |= {"left": inputs[0], "right": inputs[1], "how": how}
    operator: Join = head(**arguments)
    listened = tuple(Input(one.lineage, one.keys, one.schema) for one, _ in timed)
    make = partial(made, head, arguments)
    vertex = left._operator("join", make, operator.schemas, listened, hint_of("join", keys))
    vertex.settings["holds_us"] = operator.holds_us
    renamed |= dict(zip(right_keys, keys, strict=True))
    return Stream(left.flow, Tap(vertex, "out"), operator.schema, keys, _later(left.time, right.time, renamed))


def _kind(within: Within | None, window: Tumbling | None) -> tuple[Any, dict[str, Any]]:
    if (within is None) == (window is None):
        raise Misuse("say how near in time rows must be: within='30s', or window=tumbling('10s'), not both")
    if window is not None:
        if not isinstance(window, Tumbling):
            raise Misuse(f"{window!r} is no window; give tumbling('1m')")
        if window.by_arrival:
            raise Misuse("rows are joined by their event times; give a window without by='arrival'")
        return WindowJoin, {"size_us": window.size_us, "offset_us": window.offset_us}
    if isinstance(within, tuple):
        if len(within) != 2:
            raise Misuse(f"within={within!r}; give a duration or (from, to)")
        lower, upper = (microseconds(bound) for bound in within)
        return IntervalJoin, {"lower_us": lower, "upper_us": upper}
    assert within is not None
    bound = microseconds(within)
    if bound < 0:
        raise Misuse(f"within={within!r} is less than zero; give a duration or (from, to)")
    return IntervalJoin, {"lower_us": -bound, "upper_us": bound}


def _shown(stream: Stream) -> str:
    return ", ".join(f"{key} ({stream.schema.field(key).type})" for key in stream.keys or ()) or "no columns"


def _right_names(left: Stream, right: Stream, suffix: str) -> dict[str, str]:
    """What each right column that is no key is called behind the join."""
    taken = set(left.schema.names)
    columns = [name for name in right.schema.names if name not in (right.keys or ())]
    names = {name: name + suffix if name in taken else name for name in columns}
    for name, new in names.items():
        if new in taken:
            raise Misuse(f"the right column {name!r} would be a second {new!r}; rename it, or give another suffix=")
        taken.add(new)
    return names


def _refuse_filled_times(left: Stream, right: Stream, how: str) -> None:
    """An unmatched row fills the key columns with its own key. Where a key is also the time of one side only, that
    would be a time that the row does not have."""
    if how == "inner" or left.time is None or right.time is None:
        return
    for one, other in zip(left.keys or (), right.keys or (), strict=True):
        both = [[t.column for t in stream.time.parts] for stream in (left, right) if stream.time is not None]
        if (one in both[0]) != (other in both[1]):
            raise Misuse(f"{one!r} is a key and the time of one side only; use how='inner', or key by another column")


def _later(left: Time | None, right: Time | None, renamed: dict[str, str]) -> Time | None:
    """The later of both times; of an unmatched row only one is there."""
    if left is None or right is None:
        return None
    parts = [*left.parts, *(replace(part, column=renamed[part.column]) for part in right.parts)]
    first, *others = dict.fromkeys(parts)
    return replace(first, others=tuple(others))
