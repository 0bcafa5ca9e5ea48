"""The verb `bench`: measures a named load on real processes and says whether the result is right."""

from __future__ import annotations

import csv as csv_form
import json as json_form
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seep.errors import Misuse

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def bench(
    name: Annotated[
        str, typer.Argument(help="keyed-window, overhead, recovery, rescale, skew or zombie")
    ] = "keyed-window",
    on: Annotated[str, typer.Option("--on", help="local or spark")] = "local",
    kills: Annotated[
        int | None,
        typer.Option("--kills", min=1, help="kills, changes, pauses, seeds or pairs of runs; else the full number"),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1_000, help="rows in all (keyed-window, skew)")] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=1, help="rows a second of the open load")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="of a run (overhead), pause (zombie) or calm (rescale)")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="of the rows and of what is done to them")] = 42,
    state: Annotated[str, typer.Option("--state", help="state to carry along (rescale), such as 250MB")] = "0",
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="runs; figures are their medians")] = 1,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="write the result here; - prints it")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="write settings and figures here, one to a row")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="draw what was measured")] = None,
) -> None:
    """Measure, and compare the result with an independent one. Exit code 1 when it is not the same.

    Example: seep bench recovery --kills 5
    """
    from benchmarks.catalogue import measure
    from benchmarks.outcome import Options
    from benchmarks.picture import draw

    options = Options(on, kills, rows, rate, seed, _bytes(state), seconds)
    outcome = _with_progress(lambda tell: measure(name, options, repeat, tell))
    found = outcome.as_dict()
    if json == "-":
        typer.echo(json_form.dumps(found))
    elif json is not None:
        Path(json).write_text(json_form.dumps(found, indent=2) + "\n")
    if json != "-":
        _show(outcome)
    if csv is not None:
        with csv.open("w", newline="") as file:
            csv_form.writer(file).writerows([("figure", "value"), ("verified", outcome.verified), *_flat(outcome)])
    if plot is not None:
        draw(plot, f"{outcome.name}, {found['machine']['cores']} cores", outcome.series)
    if not outcome.verified:
        raise typer.Exit(1)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([KMG]B)?", text.strip())
    if not found:
        raise Misuse(f"--state {text!r} is no size; give one such as 250MB")
    return int(found[1]) * UNITS[found[2] or ""]


def _with_progress(work: Any) -> Outcome:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # On standard error: what is piped is the result alone.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        outcome: Outcome = work(lambda what, share: progress.update(task, description=what, completed=share))
    return outcome


def _flat(outcome: Outcome) -> list[tuple[str, Any]]:
    """Settings, then figures, each under one name, such as ``recovery_ms p50``."""
    found = []
    for name, value in [*outcome.settings.items(), *outcome.figures.items()]:
        nested = value.items() if isinstance(value, dict) else [("", value)]
        found += [(f"{name} {key}".strip(), one) for key, one in nested]
    return found


def _show(outcome: Outcome) -> None:
    from rich.console import Console
    from rich.table import Table

    from benchmarks.picture import as_text

    table = Table(title=f"{outcome.name}: {'verified' if outcome.verified else 'NOT THE SAME AS THE ORACLE'}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in _flat(outcome):
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    Console().print(table)
    for line in as_text(outcome.series):
        typer.echo(line)
