"""What one sees: a live view on a terminal, plain lines anywhere else.

The steps of the story are all on the screen from the first second; what is done gets its time, what is under way a
turning sign and what the controller says about it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.watch import Picture

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 60
PLAIN_SECONDS = 5.0


@dataclass
class Step:
    title: str
    began: float = 0.0
    seconds: float | None = None
    remark: str = ""


@dataclass
class Screen:
    console: Console
    title: str
    about: str
    steps: list[Step]
    picture: Picture = field(default_factory=Picture)
    rates: tuple[float, ...] = ()
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._said = 0.0
        self._turning = Spinner("dots", style="cyan")
        self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=8)

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live.start()
        else:
            self.console.print(f"{self.title}\n{self.about}", highlight=False, soft_wrap=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()

    # --- what happens --------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        step.began = time.monotonic()
        self._say(f"{step.title} ...")

    def done(self, step: Step, seconds: float, remark: str = "") -> None:
        step.seconds, step.remark = seconds, remark or step.remark
        self._say(f"{step.title}: {_seconds(seconds)}{'  ' if remark else ''}{remark}")

    def happened(self, step: Step, what: str) -> None:
        """Something of note, in this step or after it."""
        if step.seconds is None:
            step.remark = what
        self._say(f"  {what}")

    def show(self, picture: Picture, rates: Iterable[float]) -> None:
        self.picture, self.rates = picture, tuple(rates)
        if time.monotonic() - self._said > PLAIN_SECONDS:
            rate = self.rates[-1] if self.rates else 0.0
            self._say(
                f"  {picture.lines:,} lines, {rate:,.0f} lines/s, {picture.behind_seconds:.1f} s behind the tills;"
                f" {picture.partitions} partitions of the lookup, {picture.workers} workers"
                if picture.lines
                else f"  nothing is sold yet; {picture.workers} workers are up"
            )

    def _say(self, what: str) -> None:
        self._said = time.monotonic()
        if not self.console.is_terminal:
            self.console.print(f"{self._said - self.began:5.1f} s  {what}", soft_wrap=True, highlight=False)

    # --- the live view -------------------------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """The whole screen as of now."""
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(Text(self.title, "bold"), Text(f"{time.monotonic() - self.began:.0f} s", "dim"))
        parts = [head, Text(self.about, "dim"), Text(), *self._numbers(), Text(), self._shop(), Text(), self._story()]
        return Padding(Group(*parts), (1, 2, 0, 2))

    def _numbers(self) -> list[RenderableType]:
        picture = self.picture
        if not picture.lines:
            return [Text(f"nothing is sold yet; {picture.workers} workers are up", "dim"), Text()]
        rate = self.rates[-1] if self.rates else 0.0
        line = Text()
        for number, unit in (
            (f"{picture.lines:,}", "lines"),
            (_dollars(picture.revenue_cents), "sold"),
            (f"{rate:,.0f}", "lines/s"),
            (f"{picture.behind_seconds:.1f} s", "behind the tills"),
        ):
            line.append(number, "bold cyan").append(f" {unit}   ", "dim")
        places = Text("■ " * picture.partitions, "green").append("partitions of the lookup, ", "dim")
        places.append(f"{picture.workers} workers{'; changing' if picture.moving else ''}", "dim")
        shown = Text(chart(self.rates[-HISTORY:]), "cyan").append("  lines/s", "dim")
        return [line, shown, places]

    def _shop(self) -> RenderableType:
        picture = self.picture
        best = _table("best-selling, last 5 minutes", "left", "right")
        for row in picture.best:
            best.add_row(f"{row['rank']}  {row['item'][:26]}", f"{row['sold']:,}")
        stores = _table("busiest stores, last minute", "left", "right", "right", "right")
        for row in picture.stores:
            amounts = (_dollars(row["total"]), f"median {row['median'] / 100:.2f}", f"mean {row['mean'] / 100:.2f}")
            stores.add_row(f"{row['store']}: {row['items']:,}", *amounts)
        regions = _table("revenue, last hour", "left", "right", "left")
        for row in picture.regions:
            regions.add_row(row["region"], _dollars(row["revenue"]), Text(row["item"][:20], "dim"))
        both = Table.grid(padding=(0, 3))
        both.add_row(Group(*best.parts, Text(), *stores.parts), Group(*regions.parts))
        return both

    def _story(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=1)
        table.add_column()
        table.add_column(justify="right", width=7)
        table.add_column(style="dim")
        for step in self.steps:
            if step.seconds is not None:
                table.add_row(Text("✓", "green"), step.title, _seconds(step.seconds), step.remark)
            elif step.began:
                so_far = _seconds(time.monotonic() - step.began)
                table.add_row(self._turning, Text(step.title, "bold"), Text(so_far, "dim"), step.remark)
            else:
                table.add_row(Text("·", "dim"), Text(step.title, "dim"), "", Text(step.remark))
        return table


class Titled:
    """A table under its title; just a dash while it is empty."""

    def __init__(self, title: str, rows: Table) -> None:
        self.title, self.rows = title, rows

    def add_row(self, *cells: Any) -> None:
        self.rows.add_row(*cells)

    @property
    def parts(self) -> list[RenderableType]:
        return [Text(self.title, "dim"), self.rows if self.rows.row_count else Text("-", "dim")]


def _table(title: str, *sides: Any) -> Titled:
    rows = Table.grid(padding=(0, 2))
    for side in sides:
        rows.add_column(justify=side, no_wrap=True)
    return Titled(title, rows)


def chart(history: tuple[float, ...]) -> str:
    """One bar for each second, against the highest.

    >>> chart((0.0, 5.0, 10.0))
    '▁▅█'
    """
    highest = max(history, default=0.0) or 1.0
    return "".join(BARS[min(len(BARS) - 1, max(0, round(rate / highest * (len(BARS) - 1))))] for rate in history)


def _dollars(cents: float) -> str:
    return f"${cents / 100:,.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
