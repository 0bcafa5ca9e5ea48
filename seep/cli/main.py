"""The entry of the command line: verbs, and what becomes of errors.

Wrong input is one line on standard error and exit code 2, a job that cannot now is exit code 3, a loss or a defect is
exit code 1, Ctrl-C is 130; a traceback only with ``--debug``.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from seep.cli import apps, bench, jobs, savepoints, simulate, state
from seep.errors import Misuse, Retry, SeepError

app = typer.Typer(
    name="seep", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None
)
for verb in (
    apps.run,
    apps.check,
    apps.graph,
    apps.restore,
    bench.bench,
    jobs.ps,
    jobs.explain,
    jobs.scale,
    jobs.rebalance,
    jobs.kill,
    jobs.savepoint,
    savepoints.diff,
    jobs.audit,
    jobs.chaos,
    state.state,
    jobs.stop,
    simulate.simulate,
):
    app.command()(verb)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Stateful stream operators that grow, shrink and recover while they run."""


def main() -> None:
    try:
        app()
    except SeepError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"seep: {error}", err=True)
        for line in error.history:
            typer.echo(f"  {line}", err=True)
        sys.exit(2 if isinstance(error, Misuse) else 3 if isinstance(error, Retry) else 1)
