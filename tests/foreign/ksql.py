"""Reads record-at-a-time cases: JSON files of statements, the messages that come in, and those that must go out.

The statements are SQL with words of their own (``WITHIN``, ``WINDOW TUMBLING``, ``PARTITION BY``, ``EMIT``): these are
cut out by patterns, and what is left is plain SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from tests.foreign.types import INTERVAL_UNITS, arrow_type
from tests.foreign.verdicts import NotSaid

_FLAGS = re.IGNORECASE | re.DOTALL
_SPAN = r"(\d+)\s+(\w+)"


@dataclass(frozen=True)
class Message:
    topic: str
    key: Any
    value: Any
    at_ms: int
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class Case:
    """One case as it stands in a file."""

    name: str
    statements: tuple[str, ...]
    inputs: tuple[Message, ...]
    outputs: tuple[Message, ...]
    unsaid: str = ""


@dataclass(frozen=True)
class Declared:
    """A stream or table that is a topic."""

    name: str
    is_table: bool
    fields: tuple[pa.Field, ...]
    keys: tuple[str, ...]
    topic: str
    formats: tuple[str, str]
    """Of key and value."""


@dataclass(frozen=True)
class Derived:
    """A stream or table made by a query."""

    name: str
    is_table: bool
    select: exp.Select
    topic: str
    formats: tuple[str | None, str | None]
    window: tuple[str, timedelta, timedelta] | None = None
    """tumbling, hopping or session; the size or gap; the advance."""
    within: tuple[tuple[timedelta, timedelta], ...] = ()
    grace: timedelta | None = None
    partition: tuple[exp.Expression, ...] = ()
    final: bool = False
    aliases: dict[str, str] = field(default_factory=dict)


def readable(path: Path) -> bool:
    """Whether the file is one of such cases."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        return False
    tests = found.get("tests") if isinstance(found, dict) else None
    return isinstance(tests, list) and all("name" in one and "statements" in one for one in tests)


def cases(path: Path) -> Iterator[Case]:
    """The cases of a file; one with several formats is as many cases."""
    for one in json.loads(path.read_text())["tests"]:
        for form in one.get("format") or [""]:
            yield _case(one, form)


def _case(one: dict[str, Any], form: str) -> Case:
    unsaid = ""
    if "expectedException" in one:
        unsaid = "an error is expected"
    elif "outputs" not in one or "inputs" not in one:
        unsaid = "a case without messages"
    elif one.get("enabled") is False:
        unsaid = "switched off by its engine"
    elif any("headers" in each for each in one["inputs"]):
        unsaid = "message headers"
    statements = tuple(each.replace("{FORMAT}", form) for each in one["statements"])
    name = one["name"] + (f" - {form}" if form else "")
    made = [() if unsaid else tuple(map(_message, one[side])) for side in ("inputs", "outputs")]
    return Case(name, statements, made[0], made[1], unsaid)


def _message(one: dict[str, Any]) -> Message:
    window = one.get("window")
    return Message(
        one["topic"].replace("{FORMAT}", ""),
        one.get("key"),
        one["value"],
        one.get("timestamp", 0),
        None if window is None else (window["start"], window["end"]),
    )


def parsed(statement: str) -> Declared | Derived | None:
    """What a statement makes; nothing of one that only sets something."""
    text = re.sub(r"--[^\n]*", " ", statement).replace("`", '"').strip().rstrip(";")
    if re.match(r"set\b|unset\b", text, _FLAGS):
        return None
    head = re.match(
        r"create\s+(?:or\s+replace\s+)?(?:source\s+)?(stream|table)\s+(?:if\s+not\s+exists\s+)?\"?(\w+)\"?\s*",
        text,
        _FLAGS,
    )
    if head is None:
        raise NotSaid(f"statement {' '.join(text.split()[:2]).lower()}")
    is_table, name = head.group(1).lower() == "table", head.group(2).lower()
    query = re.search(r"\bas\s+(select\b.*)$", text[head.end() :], _FLAGS)
    start = text[head.end() : head.end() + query.start()] if query else text[head.end() :]
    options = _options(start)
    both = options.get("format")
    formats = options.get("key_format", both), options.get("value_format", both)
    topic = options.get("kafka_topic", name.upper())
    if {"value_schema_id", "key_schema_id", "schema_id"} & set(options):
        raise NotSaid("a schema that is kept elsewhere")
    if "timestamp" in options or "window_type" in options or options.get("wrap_single_value") == "false":
        raise NotSaid("a topic with its own timestamps, windows or wrapping")
    if query is not None:
        return _derived(name, is_table, query.group(1), topic, formats)
    columns = re.match(r"\((.*)\)\s*with\b", start, _FLAGS)
    if columns is None:
        raise NotSaid("a schema that is kept elsewhere")
    fields, keys = [], []
    for one in _split(columns.group(1)):
        words = re.match(r"\s*\"?([\w]+)\"?\s+(.*?)\s*(primary\s+key|key|headers?(?:\(.*\))?)?\s*$", one, _FLAGS)
        if words is None or (words.group(3) or "").lower().startswith("header"):
            raise NotSaid("a column of another kind")
        fields.append(pa.field(words.group(1).lower(), _type(words.group(2))))
        if words.group(3):
            keys.append(words.group(1).lower())
    if not keys and (formats[0] or "").upper() not in ("", "KAFKA", "NONE", "JSON", "DELIMITED"):
        raise NotSaid("a schema that is kept elsewhere")
    return Declared(
        name,
        is_table,
        tuple(fields),
        tuple(keys),
        topic,
        ((formats[0] or "KAFKA").upper(), (formats[1] or "JSON").upper()),
    )


def _type(text: str) -> pa.DataType:
    plain = text.lower().strip()
    if plain in ("timestamp", "date", "time", "bytes"):
        raise NotSaid(f"type {plain}")
    if "<" in plain:
        raise NotSaid(f"type {plain.split('<')[0].strip()}")
    try:
        return arrow_type(exp.DataType.build("varchar" if plain == "string" else plain))
    except sqlglot.errors.SqlglotError as error:
        raise NotSaid("a type of its own") from error


def _options(text: str) -> dict[str, str]:
    found = re.search(r"with\s*\((.*)\)\s*$", text, _FLAGS)
    pairs = re.findall(r"(\w+)\s*=\s*('[^']*'|\w+)", found.group(1)) if found else []
    return {
        name.lower(): value.strip("'").lower() if name.lower() != "kafka_topic" else value.strip("'")
        for name, value in pairs
    }


def _derived(name: str, is_table: bool, text: str, topic: str, formats: tuple[str | None, str | None]) -> Derived:
    final = re.search(r"\bemit\s+final\b", text, _FLAGS) is not None
    text = re.sub(r"\bemit\s+(changes|final)\b", "", text, flags=_FLAGS)
    window, grace = None, None
    found = re.search(r"\bwindow\s+(tumbling|hopping|session)\s*\(([^)]*)\)", text, _FLAGS)
    if found:
        window, grace = _window(found.group(1).lower(), found.group(2))
        text = text[: found.start()] + text[found.end() :]
    within = []
    pattern = rf"\bwithin\s+(?:{_SPAN}|\(\s*{_SPAN}\s*,\s*{_SPAN}\s*\))(?:\s+grace\s+period\s+{_SPAN})?"
    for each in re.finditer(pattern, text, _FLAGS):
        spans = [_span(*each.group(at, at + 1)) if each.group(at) else None for at in (1, 3, 5, 7)]
        within.append((spans[0] or spans[1], spans[0] or spans[2]))
        grace = grace if spans[3] is None else spans[3]
    text = re.sub(pattern, "", text, flags=_FLAGS)
    partition: list[exp.Expression] = []
    found = re.search(r"\bpartition\s+by\s+(.*?)$", text, _FLAGS)
    if found:
        partition = [_expression(one) for one in _split(found.group(1))]
        text = text[: found.start()]
    try:
        select = sqlglot.parse_one(text)
    except sqlglot.errors.SqlglotError as error:
        raise NotSaid("syntax that sqlglot does not read") from error
    if not isinstance(select, exp.Select):
        raise NotSaid("syntax that sqlglot does not read")
    given = tuple((before, after) for before, after in within if before is not None and after is not None)
    return Derived(name, is_table, select, topic, formats, window, given, grace, tuple(partition), final)


def _expression(text: str) -> exp.Expression:
    try:
        return sqlglot.parse_one(text)
    except sqlglot.errors.SqlglotError as error:
        raise NotSaid("syntax that sqlglot does not read") from error


def _window(kind: str, text: str) -> tuple[tuple[str, timedelta, timedelta], timedelta | None]:
    spans = {
        (words or "size").split()[0].lower(): _span(number, unit)
        for words, number, unit in re.findall(rf"(size|advance\s+by|retention|grace\s+period)?\s*{_SPAN}", text, _FLAGS)
    }
    return (kind, spans["size"], spans.get("advance", spans["size"])), spans.get("grace")


def _span(number: str, unit: str) -> timedelta:
    per = INTERVAL_UNITS.get(unit.lower().rstrip("s"))
    if per is None:
        raise NotSaid("an interval of months or of parts")
    return int(number) * per


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "(<") - (sign in ")>")
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
