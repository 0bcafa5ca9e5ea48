"""The verb on savepoints themselves: diff."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seep.cli.output import Json, show
from seep.errors import Misuse
from seep.runtime.home import job_path

if TYPE_CHECKING:
    from seep.running.savepoint import Savepoint

SHOWN = 200
"""Letters of what an entry holds; --json has them all."""
Saved = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="its directory, or FLOW/NAME")]


def diff(one: Saved, other: Saved, json: Json = False) -> None:
    """What differs between two savepoints.

    Operators, keys, and how far sources have read. Exit code 1 when anything differs.

    Example: seep diff sales/v1 sales/v2
    """
    from seep.running.difference import difference_of

    found = difference_of(savepoint(one), savepoint(other))
    answer = {"one": one, "other": other, **found}
    show([_plain(answer)], json, _lines)
    if not found["same"]:
        raise typer.Exit(1)


def savepoint(given: str) -> Savepoint:
    """By its directory, or by flow and name."""
    from seep.running.savepoint import Savepoint

    flow, _, name = given.rpartition("/")
    if (Path(given) / "manifest.json").exists() or not flow or "/" in flow:
        return Savepoint(Path(given))
    path = job_path(flow) / "savepoints" / name
    if not path.exists():
        raise Misuse(f"there is no savepoint {given}: no such directory, and flow {flow!r} has none of that name")
    return Savepoint(path)


def _plain(value: Any) -> Any:
    """JSON knows no times, bytes and decimals."""
    if isinstance(value, dict):
        return {name if isinstance(name, str) else str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, timedelta):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _lines(answer: dict[str, Any]) -> list[str]:
    first, second = answer["epochs"]
    lines = [f"{answer['one']} (epoch {first}) and {answer['other']} (epoch {second}) "]
    lines[0] += "hold the same" if answer["same"] else "differ"
    for kind in ("added", "removed"):
        lines += [f"  operator {name}: {kind}" for name in answer["operators"][kind]]
    for name, found in answer["operators"]["changed"].items():
        counts = ", ".join(f"{number} {kind}" for kind, number in found["keys"].items() if number)
        lines.append(f"  operator {name}: {counts}")
        for kind in ("added", "removed"):
            lines += [f"    column {column}: {kind}" for column in found["columns"][kind]]
        for kind, examples in found["examples"].items():
            lines += [f"    {kind} {_pairs(one['key'])}: {_held(kind, one['value'])}" for one in examples]
    for kind in ("added", "removed"):
        lines += [f"  source {name}: {kind}" for name in answer["sources"][kind]]
    for name, splits in answer["sources"]["changed"].items():
        lines += [f"  source {name}, split {split}: {was} -> {now}" for split, (was, now) in splits.items()]
    return lines


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "(all)"


def _held(kind: str, values: dict[str, Any]) -> str:
    if kind == "changed":
        values = {name: f"{was} -> {now}" for name, (was, now) in values.items()}
    found = _pairs(values)
    return found if len(found) <= SHOWN else f"{found[:SHOWN]} ..."
