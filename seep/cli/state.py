"""The verb that looks into a flow: state."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from seep.cli import client
from seep.cli.jobs import Flow
from seep.cli.output import Json, show
from seep.errors import Misuse, Retry
from seep.runtime.home import job_path

WIDTH = 60
"""Of a column, at most."""


def state(
    flow: Flow,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="a select; tables are operators, with _ for -")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="SAVEPOINT", help="a savepoint's name, or its directory")
    ] = None,
    json: Json = False,
) -> None:
    """What operators remember, by SQL.

    At one epoch of the running flow, which does not stop for it, or at a savepoint.

    Example: seep state sales "select * from store_minute where revenue > 1000"
    """
    show([_answer(flow, sql, at)], json, _lines)


def _answer(flow: str, sql: str, at: str | None) -> dict[str, Any]:
    if at is None or (job_path(flow) / "api").exists():
        try:
            return client.ask(flow, "POST", "state", {"sql": sql, "at": at})
        except Retry:
            # Of a job that was killed the address is still there.
            if at is None:
                raise
    return _saved(flow, sql, at)


def _saved(flow: str, sql: str, at: str) -> dict[str, Any]:
    """Of a flow that does not run: by the code it ran with."""
    if not (job_path(flow) / "key").exists():
        raise Misuse(f"flow {flow!r} has never run here; its savepoints are read by the code in {job_path(flow)}")
    from seep.running.queries import answer_of, shown
    from seep.running.savepoint import savepoint_at
    from seep.running.state import saved_graph

    return shown(flow, answer_of(saved_graph(job_path(flow)), savepoint_at(job_path(flow), at), sql))


def _lines(answer: dict[str, Any]) -> list[str]:
    columns, rows = answer["columns"], answer["rows"]
    cells = [columns, *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    numeric = [all(isinstance(row[name], int | float | None) for row in rows) for name in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]
    return [*lines, f"{len(rows)} row{'' if len(rows) == 1 else 's'} at epoch {answer['epoch']}"]


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
