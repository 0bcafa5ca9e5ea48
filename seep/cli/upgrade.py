"""The verb that changes the code of a running flow: upgrade."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from seep.cli import client
from seep.cli.apps import App, only
from seep.cli.jobs import Flow
from seep.cli.output import Json, show
from seep.runtime.home import job_path


def upgrade(
    flow: Flow,
    app: App,
    operator: Annotated[
        list[str] | None, typer.Option("--operator", metavar="NAME", help="only this one; else all that have changed")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="OPERATOR.NAME", help="a state or column that may be lost"),
    ] = None,
    json: Json = False,
) -> None:
    """Give operators new code while they run.

    From one epoch on they run the code of this version of the app.

    Example: seep upgrade sales app.py --operator visits
    """
    client.ask(flow, "GET", "status")  # before the app is loaded: is there anything to upgrade?
    new = only(app, flow)
    from seep.running.upgrading import planned
    from seep.runtime.job import JobDirectory

    found = planned(JobDirectory(job_path(flow)), new, operator or (), drop or ())
    upgraded = [client.ask(flow, "POST", "upgrade", {"operator": name, "code": code}) for name, code in found]
    show([{"flow": flow, "upgraded": upgraded}], json, _lines)


def _lines(answer: dict[str, Any]) -> list[str]:
    return [f"{one['operator']}: upgraded from epoch {one['epoch']} on" for one in answer["upgraded"]]
