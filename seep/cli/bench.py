"""The verb `bench`: measures a named load on real processes and says whether the result is right."""

from __future__ import annotations

import json as json_form
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seep.cli.output import check_writable, with_progress

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome, Tell
    from benchmarks.sweeps import Row


def bench(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="keyed-count, recovery, ..., or module:Class, a workload of yours; none: all that have peers",
        ),
    ] = None,
    on: Annotated[str, typer.Option("--on", help="local, spark or ray")] = "local",
    peers: Annotated[
        str, typer.Option("--peers", help="other engines to compare with, such as polars,flink; or all")
    ] = "",
    kills: Annotated[
        int | None,
        typer.Option("--kills", min=1, help="kills, changes, pauses, seeds or pairs of runs; else the full number"),
    ] = None,
    starts: Annotated[
        int | None, typer.Option("--starts", min=1, help="numbers of partitions to start from (policies); else 36")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part", help="this part alone, such as checkpoints (overhead), upgrade (rescale), decode (kafka)"
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1_000, help="end after so many rows; else measure for some seconds")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=1, help="rows a second of the open load")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.1, help="measured; a pause (zombie), calm (rescale)")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="of the rows and of what is done to them")] = 42,
    state: Annotated[str, typer.Option("--state", help="state to carry along, such as 250MB")] = "0",
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="SETTING=A,B", help="one run for each, such as checkpoint=1s,5s; several: all"),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="runs of each; what is shown are their medians")] = 1,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="write the result here; - prints it")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="write a table here: a run to a row, what was measured in columns"),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="draw what was measured")] = None,
) -> None:
    """Measure, and check the result against an independent one.

    Exit code 1 when it is not the same.

    Example: seep bench keyed-window --peers polars,flink
    """
    from benchmarks.catalogue import THROUGHPUT, check, measure, together
    from benchmarks.outcome import Options
    from benchmarks.peers import known_peers
    from benchmarks.picture import check_drawable
    from benchmarks.sweeps import row_of, size_bytes, swept, write

    for option, path in (("--json", None if json in (None, "-") else Path(json)), ("--csv", csv), ("--plot", plot)):
        if path is not None:
            check_writable(option, path)
    if plot is not None:
        check_drawable(plot)
    known = known_peers(peers)
    options = Options(on, kills, rows, rate, seed, size_bytes(state), seconds, known, starts=starts, part=part)
    names = [name] if name is not None else list(THROUGHPUT)
    points = swept(options, sweep or [])
    for one in names:
        check(one, options, points[0].chosen)
    plans = [(one, point) for one in names for point in points]
    table: list[Row] = []

    def work(tell: Tell) -> list[Outcome]:
        outcomes = []
        for number, (one, point) in enumerate(plans):
            runs = []
            said = " ".join(f"{setting}={value}" for setting, value in point.chosen.items())

            def part(what: str, share: float, number: int = number, said: str = said) -> None:
                tell(f"{said} {what}".strip(), (number + share) / len(plans))

            for outcome in measure(one, point.options, repeat, part):
                runs.append(outcome)
                table.append(row_of(point.chosen, len(runs), outcome))
                if csv is not None:
                    write(csv, table)  # after each run: what a long sweep has measured is not lost with its last run
            outcomes.append(together(runs))
        return outcomes

    outcomes = with_progress(work)
    _write(outcomes, sweep or [], table, json, plot)
    if not all(outcome.verified for outcome in outcomes):
        raise typer.Exit(1)


def _write(outcomes: list[Outcome], sweep: list[str], table: list[Row], json: str | None, plot: Path | None) -> None:
    from benchmarks.catalogue import MODULES
    from benchmarks.picture import compared, draw, pictured

    found = outcomes[0].as_dict() if len(outcomes) == 1 else _several(outcomes, sweep)
    if json == "-":
        typer.echo(json_form.dumps(found))
    elif json is not None:
        Path(json).write_text(json_form.dumps(found, indent=2) + "\n")
    if json != "-":
        for outcome in outcomes:
            _show(outcome)
    if plot is not None:
        cores = found["machine"]["cores"]
        if sweep:
            pictured(plot, f"{outcomes[0].name}, {cores} cores", table, [one.partition("=")[0] for one in sweep])
        elif len(outcomes) == 1 and (outcomes[0].name in MODULES or "peers" not in outcomes[0].figures):
            draw(plot, f"{outcomes[0].name}, {cores} cores", outcomes[0].series)
        else:
            compared(plot, f"rows a second, {cores} cores", [outcome.as_dict() for outcome in outcomes])


def _several(outcomes: list[Outcome], sweep: list[str]) -> dict[str, Any]:
    runs = [outcome.as_dict() for outcome in outcomes]
    name = outcomes[0].name if sweep else "all"
    return {
        "name": name,
        "settings": {"sweep": sweep} if sweep else {},
        "machine": runs[0]["machine"],
        "verified": all(run["verified"] for run in runs),
        "runs": [{key: value for key, value in run.items() if key != "machine"} for run in runs],
    }


def _show(outcome: Outcome) -> None:
    from rich.console import Console
    from rich.table import Table

    from benchmarks.picture import as_text
    from benchmarks.sweeps import leaves

    table = Table(title=f"{outcome.name}: {'verified' if outcome.verified else 'NOT THE SAME AS THE ORACLE'}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in leaves([*outcome.settings.items(), *outcome.figures.items()], " "):
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    Console().print(table)
    for line in as_text(outcome.series):
        typer.echo(line)
