"""How answers are printed: lines for people, or one JSON object to a line."""

from __future__ import annotations

import json as json_form
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

Result = TypeVar("Result")
Json = Annotated[bool, typer.Option("--json", help="machine-readable lines only")]


def show(answers: Iterable[dict[str, Any]], json: bool, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    try:
        for answer in answers:
            for line in [json_form.dumps(answer)] if json else lines(answer):
                typer.echo(line)
    except OSError as error:
        error.filename = error.filename or "standard output"
        raise


def with_progress(work: Callable[[Callable[[str, float], None]], Result]) -> Result:
    """Long work; it says what is going on, and which share of it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # On standard error: what is piped is the result alone. Where nobody watches it would leave an empty line behind.
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=1.0)
        return work(lambda what, share: progress.update(task, description=what, completed=share))
