"""The verdict in words."""

from __future__ import annotations

from rich.console import Console

from demo.judge import Verdict
from demo.shop import BEST, HOURS, MINUTES, SO_FAR

NAMES = {
    MINUTES: "stores in the last minute",
    BEST: "best-selling items",
    HOURS: "revenue of the last hour",
    SO_FAR: "sums since the start",
}


def report(console: Console, verdict: Verdict) -> None:
    rows = ", ".join(f"{verdict.rows[name]:,} of {what}" for name, what in NAMES.items())
    console.print(f"\n  {verdict.lines:,} lines sold; results: {rows}", highlight=False)
    console.print("  compared row by row with what DuckDB finds in the same lines:", highlight=False)
    lines = f"lost {verdict.lost:,}, duplicated {verdict.duplicated:,}"
    if verdict.exact:
        console.print(f"  [bold green]exact[/]: {lines}", highlight=False)
        return
    wrong = ", ".join(f"{count:,} wrong rows of {NAMES[name]}" for name, count in verdict.wrong.items() if count)
    console.print(f"  [bold red]not exact[/]: {lines}; {wrong or 'no wrong rows'}", highlight=False)
