"""How answers are printed: lines for people, or one JSON object to a line."""

from __future__ import annotations

import json as json_form
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="machine-readable lines only")]


def show(answers: Iterable[dict[str, Any]], json: bool, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    for answer in answers:
        if json:
            typer.echo(json_form.dumps(answer))
        else:
            for line in lines(answer):
                typer.echo(line)
