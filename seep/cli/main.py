"""The entry of the command line: verbs, and what becomes of errors.

Wrong input (a verb, an option, an app, an address where nobody answers) is one line on standard error and exit code 2,
a running job that cannot now is exit code 3, a loss, a defect or an output that takes nothing is exit code 1, Ctrl-C is
130; a traceback only with ``--debug``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from seep.cli import apps, bench, graph, jobs, savepoints, simulate, state, upgrade
from seep.errors import Misuse, Retry, SeepError

app = typer.Typer(name="seep", pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
for verb in (
    apps.run,
    apps.check,
    graph.graph,
    apps.restore,
    bench.bench,
    jobs.ps,
    jobs.explain,
    jobs.scale,
    jobs.rebalance,
    jobs.kill,
    jobs.savepoint,
    savepoints.diff,
    upgrade.upgrade,
    jobs.audit,
    jobs.chaos,
    state.state,
    jobs.stop,
    simulate.simulate,
):
    app.command()(verb)


_Usage: type[Exception] = typer.BadParameter.__bases__[0]
"""What is raised for any wrong option or argument; its own name is in a private module of typer."""


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Stateful stream operators that grow, shrink and recover while they run.

    Exit codes: 0 done, 1 something was lost or differs, 2 wrong input, 3 not now, try again, 130 Ctrl-C.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was begun is ended, and nothing left
    debug = "--debug" in sys.argv[1:]
    try:
        # Before the verb or behind it: who sees an error adds it at the end of the line.
        given = [argument for argument in sys.argv[1:] if argument != "--debug"]
        code = app(given, standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(code)
    except typer.Abort:
        sys.exit(130)  # Ctrl-C
    except _Usage as error:
        typer.echo(f"seep: {_usage_line(error)}", err=True)
        sys.exit(2)
    except SeepError as error:
        if debug:
            raise
        if _nobody_reads():  # what a sink prints
            _end_output()
            sys.exit(1)
        typer.echo(f"seep: {error}", err=True)
        for line in error.history:
            typer.echo(f"  {line}", err=True)
        sys.exit(2 if isinstance(error, Misuse) else 3 if isinstance(error, Retry) else 1)
    except OSError as error:
        if debug:
            raise
        if not _nobody_reads():
            where = f"{error.filename}: " if error.filename else ""
            said = " ".join((error.strerror or str(error) or type(error).__name__).split())
            typer.echo(f"seep: {where}{said}; with --debug it says more", err=True)
        _end_output()
        sys.exit(1)


def _nobody_reads() -> bool:
    """Is standard output a pipe that was closed at its other end? Then its reader has enough, and nothing is wrong."""
    with suppress(OSError):
        look = select.poll()
        look.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in look.poll(0))
    return False


def _end_output() -> None:
    """What standard output did not take would be tried again when Python ends, and complained of."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _usage_line(error: Any) -> str:
    said = " ".join(error.format_message().split()).removesuffix(".")
    verb = error.ctx.info_name if error.ctx is not None and error.ctx.parent is not None else ""
    return f"{said}; see: {' '.join(filter(None, ('seep', verb, '--help')))}"
