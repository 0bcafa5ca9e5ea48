"""Sweeps: one run for each value of a setting, of several settings for each combination; and the tidy table of them.

One row for each run: what was swept, which repetition it was, all settings, whether the result was right, all figures,
each in a column of its own.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.outcome import Options, Outcome
from seep.errors import Misuse
from seep.model.duration import positive_microseconds
from seep.running.named import policy_named

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
Row = dict[str, Any]


def size_bytes(text: str) -> int:
    """
    >>> size_bytes("250MB"), size_bytes("0")
    (250000000, 0)
    """
    found = re.fullmatch(r"(\d+)\s*([KMG]B)?", text.strip())
    if not found:
        raise Misuse(f"{text!r} is no size; give one such as 250MB")
    return int(found[1]) * UNITS[found[2] or ""]


def duration(text: str) -> str:
    positive_microseconds(text)
    return text


def whole(least: int) -> Callable[[str], int]:
    """
    >>> whole(1)("1_000")
    1000
    """

    def read(text: str) -> int:
        value = int(text.replace("_", "")) if re.fullmatch(r"-?\d[\d_]*", text) else least - 1
        if value < least:
            raise Misuse(f"give a whole number from {least} up")
        return value

    return read


def number(least: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise Misuse(f"give a number from {least:g} up")
        return value

    return read


SWEPT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "checkpoint": ("checkpoint", duration),
    "epoch": ("epoch", duration),
    "keys": ("keys", whole(1)),
    "kills": ("kills", whole(1)),
    "policy": ("policy", policy_named),
    "rate": ("rate", number(1.0)),
    "rows": ("rows", whole(1_000)),
    "seconds": ("seconds", number(0.1)),
    "seed": ("seed", whole(0)),
    "state": ("state_bytes", size_bytes),
    "workers": ("workers", whole(1)),
}
"""Settings that can be swept: the option behind each, and what its values are, with the bounds of that option."""


class Point(NamedTuple):
    """One combination of what is swept."""

    chosen: Mapping[str, str]
    """As it was written."""
    options: Options


def swept(options: Options, sweeps: Sequence[str]) -> list[Point]:
    """Every combination, the last setting changing fastest; without a sweep, the one point there is.

    >>> [dict(point.chosen) for point in swept(Options(), ["epoch=5ms,50ms", "keys=10"])]
    [{'epoch': '5ms', 'keys': '10'}, {'epoch': '50ms', 'keys': '10'}]
    """
    axes = [_axis(sweep) for sweep in sweeps]
    if len({axis[0][0] for axis in axes}) < len(axes):
        raise Misuse("--sweep: one setting is swept twice; give all its values at once, such as checkpoint=1s,5s")
    points = []
    for chosen in product(*axes):
        changes = {SWEPT[setting][0]: value for setting, _, value in chosen}
        points.append(Point({setting: text for setting, text, _ in chosen}, replace(options, **changes)))
    return points


def _axis(sweep: str) -> list[tuple[str, str, Any]]:
    """(setting, as written, value) of each value."""
    setting, _, values = sweep.partition("=")
    if setting not in SWEPT or not values:
        raise Misuse(f"--sweep {sweep!r}; give one such as checkpoint=1s,5s of: {', '.join(SWEPT)}")
    made = []
    for text in (text.strip() for text in values.split(",")):
        try:
            made.append((setting, text, SWEPT[setting][1](text)))
        except Misuse as error:
            raise Misuse(f"--sweep {sweep!r}: {text!r} is no value of {setting}: {error}") from None
    return made


def row_of(chosen: Mapping[str, str], repetition: int, outcome: Outcome) -> Row:
    found: Row = {"name": outcome.name, **chosen, "repetition": repetition}
    parts = [*outcome.settings.items(), ("verified", outcome.verified), *outcome.figures.items()]
    for name, value in leaves(parts, "_"):
        found.setdefault(name, json.dumps(value) if isinstance(value, list | tuple) else value)
    return found


def leaves(items: Sequence[tuple[str, Any]], between: str) -> list[tuple[str, Any]]:
    """Values that hold no further ones, each under one name.

    >>> leaves([("recovery_ms", {"p50": 1, "max": 2}), ("lost", 0)], " ")
    [('recovery_ms p50', 1), ('recovery_ms max', 2), ('lost', 0)]
    """
    found: list[tuple[str, Any]] = []
    for name, value in items:
        if isinstance(value, Mapping):
            found += leaves([(f"{name}{between}{key}", one) for key, one in value.items()], between)
        else:
            found.append((name, value))
    return found


def write(path: Path, rows: Sequence[Row]) -> None:
    """The table; a figure that a run does not have is left empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
