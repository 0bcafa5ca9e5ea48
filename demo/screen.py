"""What one sees: a live view on a terminal, plain lines anywhere else.

The steps of the story are all on the screen from the first second; what is done gets its time, what is under way a
turning sign. The chart of the rate is the point of it: splits, kills and merges should hardly show in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.watch import Picture

BUCKETS = 4096
BAR_CELLS = 32
BARS = "▁▂▃▄▅▆▇█"
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
    steps: list[Step]
    picture: Picture = field(default_factory=Picture)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._said = 0.0
        self._turning = Spinner("dots", style="cyan")
        self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=8)

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live.start()
        else:
            self.console.print(self.title)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()

    # --- what happens --------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        step.began = time.monotonic()
        if not self.console.is_terminal:
            self._say(f"{step.title} ...")

    def done(self, step: Step, seconds: float, remark: str = "") -> None:
        step.seconds, step.remark = seconds, remark
        if not self.console.is_terminal:
            self._say(f"{step.title}: {_seconds(seconds)}{'  ' if remark else ''}{remark}")

    def show(self, picture: Picture) -> None:
        self.picture = picture
        if not self.console.is_terminal and time.monotonic() - self._said > PLAIN_SECONDS:
            pieces = ", ".join(f"{p.name} [{p.low}, {p.high}) on {p.worker or '-'}" for p in picture.pieces)
            self._say(
                f"  {picture.words:,} words, {picture.words_per_second:,.0f} words/s, epoch {picture.epoch}; {pieces}"
                if picture.words
                else f"  waiting for the first words; {picture.workers} workers are up"
            )

    def _say(self, what: str) -> None:
        self._said = time.monotonic()
        self.console.print(f"{self._said - self.began:5.1f} s  {what}", soft_wrap=True, highlight=False)

    # --- the live view -------------------------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """The whole screen as of now."""
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(Text(self.title, "bold"), Text(f"{time.monotonic() - self.began:.0f} s", "dim"))
        parts = [head, Text(), *self._numbers(), Text(), *self._partitions(), Text(), self._story()]
        return Padding(Group(*parts), (1, 2, 0, 2))

    def _numbers(self) -> list[RenderableType]:
        picture = self.picture
        if not picture.words:
            return [Text("no words yet", "dim"), Text()]
        line = Text()
        line.append(f"{picture.words:,}", "bold cyan").append(" words     ", "dim")
        line.append(f"{picture.words_per_second:,.0f}", "bold cyan").append(" words/s     epoch ", "dim")
        line.append(f"{picture.epoch:,}", "bold cyan")
        return [line, Text(chart(picture.history), "cyan").append("  words/s, each second", "dim")]

    def _partitions(self) -> list[RenderableType]:
        table = Table.grid(padding=(0, 2))
        for piece in self.picture.pieces:
            left, right = (edge * BAR_CELLS // BUCKETS for edge in (piece.low, piece.high))
            bar = Text.assemble(
                ("─" * left, "dim"), ("━" * (right - left), "bold green"), ("─" * (BAR_CELLS - right), "dim")
            )
            where = f"buckets {piece.low}–{piece.high - 1}"
            table.add_row(Text(piece.name, "green"), bar, where, Text(f"worker {piece.worker or '…'}", "dim"))
        return [Text("partitions of the counting operator", "dim"), table]

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


def chart(history: tuple[float, ...]) -> str:
    """One bar for each second, against the highest.

    >>> chart((0.0, 5.0, 10.0))
    '▁▅█'
    """
    highest = max(history, default=0.0) or 1.0
    return "".join(BARS[min(len(BARS) - 1, max(0, round(rate / highest * (len(BARS) - 1))))] for rate in history)


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
