"""The run as a picture: rate, delay, partitions and what happened, over one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo.watch import Sample

COLOURS = {"load": "#1f6fb4", "scale": "#2e8b57", "kill": "#c0392b", "back": "#8e5aa8"}
INK, PALE = "#333333", "#cccccc"


class Event(NamedTuple):
    seconds: float
    """Since the first line was sold."""
    kind: str
    what: str


def draw(
    path: Path, title: str, samples: Sequence[Sample], rates: Sequence[tuple[float, float]], events: Sequence[Event]
) -> None:
    """``rates``: (since, lines a second) of the load that was set."""
    from matplotlib.figure import Figure

    end = max([sample.seconds for sample in samples], default=1.0)
    figure = Figure(figsize=(10, 8), layout="constrained")
    panels: Any = figure.subplots(4, 1, sharex=True, height_ratios=[3, 2, 2, 2.2])
    seconds = [sample.seconds for sample in samples]
    _rate(panels[0], seconds, samples, rates, end)
    panels[1].plot(seconds, [sample.behind_seconds for sample in samples], color=INK, linewidth=1.4)
    panels[1].set(ylabel="seconds behind\nthe tills", ylim=(0, None))
    panels[2].step(seconds, [sample.partitions for sample in samples], where="post", color=INK, linewidth=1.8)
    most = max([sample.partitions for sample in samples], default=1)
    panels[2].set(ylabel="partitions\nof the lookup", ylim=(0, most + 1))
    _events(panels[3], events, end)
    for panel in panels:
        for event in events:
            panel.axvline(event.seconds, color=COLOURS[event.kind], linewidth=0.9, linestyle=":", zorder=0)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[:3]:
        panel.grid(axis="y", color=PALE, linewidth=0.5)
    panels[3].set(xlabel="seconds since the first sale", xlim=(0, end))
    figure.suptitle(title, fontsize=13, x=0.01, horizontalalignment="left")
    figure.savefig(path, dpi=120)


def _rate(
    panel: Any, seconds: Sequence[float], samples: Sequence[Sample], rates: Sequence[tuple[float, float]], end: float
) -> None:
    since = [*(at for at, _ in rates), end]
    load = [*(rate for _, rate in rates), rates[-1][1] if rates else 0.0]
    panel.step(since, load, where="post", color=COLOURS["load"], linewidth=1.2, label="sold (set)")
    panel.plot(
        seconds, [sample.lines_per_second for sample in samples], color=INK, linewidth=1.4, label="in the output"
    )
    panel.set(ylabel="lines a second", ylim=(0, None))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.legend(loc="upper right", framealpha=1.0, edgecolor="white", ncols=2, fontsize=9)


def _events(panel: Any, events: Sequence[Event], end: float) -> None:
    """One below the other, each at its time; those in the right half have their words on the left."""
    for place, event in enumerate(sorted(events)):
        right = event.seconds > 0.6 * end
        colour = COLOURS[event.kind]
        panel.plot([event.seconds], [-place], "o", color=colour, markersize=5)
        where = {"xytext": (-8 if right else 8, 0), "textcoords": "offset points", "va": "center"}
        side = "right" if right else "left"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        panel.annotate(event.what, (event.seconds, -place), ha=side, fontsize=9, color=colour, bbox=box, **where)
    panel.set(ylabel="what happened", yticks=[], ylim=(-max(1, len(events)), 1))
