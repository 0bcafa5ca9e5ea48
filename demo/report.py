"""The verdict in words."""

from __future__ import annotations

from rich.console import Console

from demo.judge import Verdict
from demo.shop import BEST, HOURS, MINUTES, SO_FAR

NAMES = {
    MINUTES: "stores by the minute",
    BEST: "best-selling items",
    HOURS: "revenue by the hour",
    SO_FAR: "everything so far",
}


def report(console: Console, verdict: Verdict, edges: str = "memory") -> None:
    seen = ", as a consumer of committed messages has seen them" if edges == "kafka" else ""
    console.print(
        f"\n  {verdict.lines:,} lines were sold, and these rows of results made of them{seen}:", highlight=False
    )
    console.print("  " + ", ".join(f"{what} {verdict.rows[name]:,}" for name, what in NAMES.items()), highlight=False)
    console.print("  compared with what DuckDB finds in the same lines, row by row:", highlight=False)
    lines = f"lost {verdict.lost:,}, duplicated {verdict.duplicated:,}"
    if verdict.exact:
        console.print(f"  [bold green]exact[/]: {lines}", highlight=False)
        return
    wrong = ", ".join(f"{count:,} wrong rows of {NAMES[name]}" for name, count in verdict.wrong.items() if count)
    console.print(f"  [bold red]not exact[/]: {lines}; {wrong or 'no wrong rows'}", highlight=False)
