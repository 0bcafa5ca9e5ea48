"""The verb `bench`: measures a named load on real processes and says whether the result is right."""

from __future__ import annotations

import csv as csv_form
import json as json_form
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seep.errors import Misuse

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome, Tell

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def bench(
    name: Annotated[
        str | None, typer.Argument(help="keyed-count, keyed-window, recovery, ...; none: all that have peers")
    ] = None,
    on: Annotated[str, typer.Option("--on", help="local or spark")] = "local",
    peers: Annotated[
        str, typer.Option("--peers", help="other engines to compare with, such as polars,flink; or all")
    ] = "",
    kills: Annotated[
        int | None,
        typer.Option("--kills", min=1, help="kills, changes, pauses, seeds or pairs of runs; else the full number"),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1_000, help="end after so many rows; else measure for some seconds")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=1, help="rows a second of the open load")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="measured; a pause (zombie), calm (rescale)")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="of the rows and of what is done to them")] = 42,
    state: Annotated[str, typer.Option("--state", help="state to carry along (rescale), such as 250MB")] = "0",
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="SETTING=A,B", help="one run for each, such as checkpoint=1s,5s")
    ] = None,
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

    Example: seep bench keyed-window --peers polars,flink
    """
    from benchmarks.catalogue import THROUGHPUT, check, measure, swept
    from benchmarks.outcome import Options
    from benchmarks.peers import known_peers

    options = Options(on, kills, rows, rate, seed, _bytes(state), seconds, known_peers(peers))
    names = [name] if name is not None else list(THROUGHPUT)
    for one in names:
        check(one, options)
    plans = [(one, each) for one in names for each in (swept(options, sweep) if sweep else [options])]

    def work(tell: Tell) -> list[Outcome]:
        def part(number: int) -> Tell:
            return lambda what, share: tell(what, (number + share) / len(plans))

        return [measure(one, each, repeat, part(number)) for number, (one, each) in enumerate(plans)]

    outcomes = _with_progress(work)
    _write(outcomes, sweep, json, csv, plot)
    if not all(outcome.verified for outcome in outcomes):
        raise typer.Exit(1)


def _write(outcomes: list[Outcome], sweep: str | None, json: str | None, csv: Path | None, plot: Path | None) -> None:
    from benchmarks.picture import compared, draw

    found = outcomes[0].as_dict() if len(outcomes) == 1 else _several(outcomes, sweep)
    if json == "-":
        typer.echo(json_form.dumps(found))
    elif json is not None:
        Path(json).write_text(json_form.dumps(found, indent=2) + "\n")
    if json != "-":
        for outcome in outcomes:
            _show(outcome)
    if csv is not None:
        with csv.open("w", newline="") as file:
            csv_form.writer(file).writerows([("figure", "value"), *_rows(outcomes)])
    if plot is not None:
        cores = found["machine"]["cores"]
        if len(outcomes) == 1 and "peers" not in outcomes[0].figures:
            draw(plot, f"{outcomes[0].name}, {cores} cores", outcomes[0].series)
        else:
            compared(plot, f"rows a second, {cores} cores", [outcome.as_dict() for outcome in outcomes], sweep)


def _several(outcomes: list[Outcome], sweep: str | None) -> dict[str, Any]:
    runs = [outcome.as_dict() for outcome in outcomes]
    name = outcomes[0].name if sweep else "all"
    return {
        "name": name,
        "settings": {"sweep": sweep} if sweep else {},
        "machine": runs[0]["machine"],
        "verified": all(run["verified"] for run in runs),
        "runs": [{key: value for key, value in run.items() if key != "machine"} for run in runs],
    }


def _rows(outcomes: list[Outcome]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for outcome in outcomes:
        if len(outcomes) > 1:
            found.append(("name", outcome.name))
        found += [("verified", outcome.verified), *_flat(outcome)]
    return found


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([KMG]B)?", text.strip())
    if not found:
        raise Misuse(f"--state {text!r} is no size; give one such as 250MB")
    return int(found[1]) * UNITS[found[2] or ""]


def _with_progress(work: Callable[[Tell], list[Outcome]]) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # On standard error: what is piped is the result alone.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        return work(lambda what, share: progress.update(task, description=what, completed=share))


def _flat(outcome: Outcome) -> list[tuple[str, Any]]:
    """Settings, then figures, each under one name, such as ``recovery_ms p50``."""
    found: list[tuple[str, Any]] = []
    for name, value in [*outcome.settings.items(), *outcome.figures.items()]:
        found += _leaves(name, value)
    return found


def _leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        return [(name, value)]
    return [leaf for key, one in value.items() for leaf in _leaves(f"{name} {key}", one)]


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
