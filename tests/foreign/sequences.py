"""Compares what a flow sent with the messages of a record-at-a-time case: for each key, and each window, in order.

A table of another engine sends a message for each that came in; seep sends changes, and none for a row that did not
change (`at most one change per key and epoch; unchanged rows are not sent`). So repeated messages of a key count once,
and a deletion of what was never there not at all. Times of messages are not compared: seep's rows have event time by
rules of their own.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.foreign.expressions import Column
from tests.foreign.ksql import Declared, Message
from tests.foreign.verdicts import Differs, NotSaid

_DICTS = ("JSON", "AVRO", "JSON_SR")


@dataclass(frozen=True)
class Shape:
    """How the rows of a flow are messages."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    is_table: bool
    formats: tuple[str, str]
    bounds: tuple[str, str] | None
    final: bool = False
    """Whether rows are results of closed windows."""
    regrouped: bool = False
    """Whether they are groups of a table's rows."""
    nears: bool = False
    """Whether they are of a join of streams that keeps unmatched rows."""

    def shown(self, physicals: tuple[str, ...] | list[str]) -> list[Column]:
        """The columns that are there under these names, each once."""
        found = {one.physical: one for one in reversed(self.columns)}
        return [found[name] for name in physicals if name in found]

    @property
    def values(self) -> list[Column]:
        taken: set[str] = set()
        kept = []
        for one in self.columns:
            if one.physical in self.key and one.physical not in taken:
                taken.add(one.physical)
            else:
                kept.append(one)
        return kept


def coded(one: Declared, message: Message) -> dict[str, Any]:
    """The columns of a message that comes in."""
    kinds = {field.name: field.type for field in one.fields}
    values = [name for name in kinds if name not in one.keys]
    row = _parts(message.key, one.formats[0], list(one.keys), True)
    if message.value is not None:
        given = _parts(message.value, one.formats[1], values, False)
        row |= {name: value for name, value in given.items() if name in values}
    return {name: _typed(value, kinds[name]) for name, value in row.items() if name in kinds}


def _parts(given: Any, form: str, names: list[str], key: bool) -> dict[str, Any]:
    if given is None or not names:
        return {}
    if isinstance(given, dict):
        if form in ("PROTOBUF", "PROTOBUF_NOSR"):
            raise NotSaid("Protobuf's defaults")
        return {name.lower(): value for name, value in given.items()}
    if form == "DELIMITED" and isinstance(given, str):
        parts = next(csv.reader([given]), [])
        if len(parts) != len(names):
            raise NotSaid("a delimited message of another shape")
        return {name: None if part == "" else part for name, part in zip(names, parts, strict=True)}
    if len(names) == 1:
        return {names[0]: given}
    raise NotSaid(f"a {'key' if key else 'message'} of another shape")


def _typed(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if isinstance(value, (dict, list)) and not pa.types.is_string(kind):
        raise NotSaid("a message of another type than its column")
    try:
        if pa.types.is_integer(kind):
            return int(value)
        if pa.types.is_floating(kind):
            return float(value)
        if pa.types.is_boolean(kind):
            return value if isinstance(value, bool) else str(value).lower() == "true"
        if pa.types.is_string(kind):
            if not isinstance(value, str):
                raise NotSaid("a message of another type than its column")
            return value
    except ValueError as error:
        raise NotSaid("a message of another type than its column") from error
    raise NotSaid(f"type {kind}")


def difference(rows: list[dict[str, Any]], shape: Shape, messages: list[Message]) -> str:
    """What is wrong with these rows; nothing if they are as the messages say."""
    found: dict[Any, list[Any]] = defaultdict(list)
    wanted: dict[Any, list[Any]] = defaultdict(list)
    keys, values = shape.shown(shape.key), shape.values
    for message in messages:
        key = _parts(message.key, shape.formats[0], [one.name for one in keys] or ["rowkey"], True)
        if isinstance(message.key, dict):
            at = tuple(sorted((name, _plain(value)) for name, value in key.items() if value is not None))
        else:
            at = tuple(("", _plain(value)) for value in key.values() if value is not None)
        parts = (
            None if message.value is None else _parts(message.value, shape.formats[1], [o.name for o in values], False)
        )
        wanted[at, message.window].append(parts)
    named = any(isinstance(message.key, dict) for message in messages)
    for row in rows:
        window = None if shape.bounds is None else (row[shape.bounds[0]], row[shape.bounds[1]])
        if named:
            at = tuple(sorted((one.name, _plain(row[one.physical])) for one in keys if row[one.physical] is not None))
        else:
            at = tuple(("", _plain(row[name])) for name in shape.key if row[name] is not None)
        if messages and all(message.key is None for message in messages):
            at = ()
        gone = shape.is_table and row["change"] == "delete"
        found[at, window].append(
            None if gone else {one.name: _empty(row[one.physical], shape.formats[1]) for one in values}
        )
    if shape.is_table:
        found = defaultdict(list, {key: _changes(some) for key, some in found.items()})
        wanted = defaultdict(list, {key: _changes(some) for key, some in wanted.items()})
    wrong = [key for key in {**wanted, **found} if not _same(found[key], wanted[key])]
    if wrong and all(window is not None and window[0] < 0 and not wanted[at, window] for at, window in wrong):
        raise Differs("sliding windows begin before the year 1970, too")
    if shape.final and not any(wanted[key] for key in wrong) and wrong:
        raise Differs("every window that the watermark passes is emitted, also one that it jumps over")
    if shape.nears and not any(found[key] for key in wrong) and wrong:
        raise Differs("a row that is late for a join goes to .late, it is not joined with nothing")
    for reason, excused in _DESIGN:
        if (
            (excused is not _no_group or shape.regrouped)
            and wrong
            and all(len(found[key]) == len(wanted[key]) and all(map(excused, found[key], wanted[key])) for key in wrong)
        ):
            raise Differs(reason)
    for key in wrong[:1]:
        return f"key {_words(key)}: {found[key]}, wanted {wanted[key]}"
    return ""


def _empty(value: Any, form: str) -> Any:
    """A delimited message does not tell no text from an empty one."""
    return None if value == "" and form == "DELIMITED" else value


def _plain(value: Any) -> str:
    """A part of a key as text, however its format writes it."""
    text = str(value)
    if isinstance(value, bool):
        return text.lower()
    return str(float(text)) if re.fullmatch(r"-?\d+\.\d+", text) else text


def _no_group(found: Any, wanted: Any) -> bool:
    return found is None or _same_value(found, wanted)


def _null_total(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    zeros = {name: 0 if value is None and wanted.get(name) == 0 else value for name, value in found.items()}
    return _same_value(zeros, wanted)


_DESIGN: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("a group of a Table without rows is deleted, it has no row of zeros", _no_group),
    ("the total of nothing is null, not 0", _null_total),
]
"""What seep says otherwise on purpose, and whether a row differs from the message in that alone."""


def _changes(values: list[Any]) -> list[Any]:
    """Without repeats, and without deleting what is not there."""
    kept: list[Any] = []
    for value in values:
        if not _same_value(value, kept[-1] if kept else None):
            kept.append(value)
    return kept


def _same(found: list[Any], wanted: list[Any]) -> bool:
    return len(found) == len(wanted) and all(_same_value(*pair) for pair in zip(found, wanted, strict=True))


def _same_value(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    names = {*found, *wanted}
    return all(_same_part(found.get(name), wanted.get(name)) for name in names)


def _same_part(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if isinstance(found, float) or isinstance(wanted, float):
        try:
            return math.isclose(float(found), float(wanted), rel_tol=1e-9, abs_tol=1e-12)
        except (TypeError, ValueError):
            return False
    if isinstance(found, bool) and isinstance(wanted, str):
        return str(found).lower() == wanted.lower()
    return bool(found == wanted) or (isinstance(wanted, str) and str(found) == wanted)


def _words(key: Any) -> str:
    (parts, window) = key
    return ",".join(value for _, value in parts) + (f" in {window}" if window else "")
