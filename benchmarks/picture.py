"""What was measured one by one, as a picture: a few lines of text, or a file drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seep.errors import Misuse
from seep.sim.loads import Report

ROWS = 8
WIDTH = 40
FIGURES = 12
"""In one picture, at most."""


def as_text(series: Mapping[str, Sequence[float]]) -> list[str]:
    """A histogram of each series.

    >>> as_text({"gap_ms": [1.0, 1.0, 3.0]})[0]
    'gap_ms'
    """
    lines: list[str] = []
    for name, values in series.items():
        known = _finite(values)
        if not len(known):
            continue
        counts, edges = np.histogram(known, ROWS)
        lines.append(name)
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
            bar = "█" * round(WIDTH * count / counts.max())
            lines.append(f"  {low:10.2f} – {high:10.2f}  {bar} {count}")
    return lines


def draw(path: Path, title: str, series: Mapping[str, Sequence[float]]) -> None:
    """Each series in the order it was measured, and how it is spread."""
    shown = {name: _finite(values) for name, values in series.items() if len(_finite(values))}
    figure = blank(9, 3.2 * max(1, len(shown)))
    axes: Any = figure.subplots(max(1, len(shown)), 2, squeeze=False)
    for (left, right), (name, values) in zip(axes, shown.items(), strict=False):
        left.plot(values, ".", markersize=4)
        left.set(xlabel="measurement", ylabel=name)
        ordered = np.sort(values)
        right.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered))
        right.set(xlabel=name, ylabel="share")
        right.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def pictured(path: Path, title: str, table: Sequence[Mapping[str, Any]], settings: Sequence[str]) -> None:
    """A sweep: each figure over the first setting, every run a dot, a line through the medians of each combination of
    the other settings."""
    figures = swept_figures(table)
    across = 2 if len(figures) > 1 else 1
    down = -(-max(1, len(figures)) // across)
    figure = blank(5.5 * across, 3.4 * down)
    axes: Any = figure.subplots(down, across, squeeze=False)
    places = list(dict.fromkeys(row[settings[0]] for row in table))
    for place, name in zip(axes.flat, figures, strict=False):
        for others, rows in _combinations(table, settings[1:]).items():
            dots = [(places.index(row[settings[0]]), row[name]) for row in rows if _measured(row.get(name))]
            marks = place.plot([at for at, _ in dots], [value for _, value in dots], ".", markersize=5, alpha=0.6)
            middles = {at: np.median([value for where, value in dots if where == at]) for at in {at for at, _ in dots}}
            line = sorted(middles.items())
            place.plot([at for at, _ in line], [value for _, value in line], color=marks[0].get_color(), label=others)
        place.set(xlabel=settings[0], ylabel=name, xticks=range(len(places)), xticklabels=places)
        place.grid(alpha=0.3)
        if settings[1:]:
            place.legend()
    for unused in list(axes.flat)[len(figures) :]:
        unused.set_visible(False)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def swept_figures(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is worth a picture: numbers measured behind ``verified`` that differ from run to run; of a spread its p50,
    p90 and greatest."""
    found = []
    for name in dict.fromkeys(name for row in table for name in list(row)[list(row).index("verified") + 1 :]):
        values = {row.get(name) for row in table}
        if all(_measured(value) for value in values) and len(values) > 1 and not name.endswith(("_count", "_p99")):
            found.append(name)
    return found[:FIGURES]


def _combinations(table: Sequence[Mapping[str, Any]], settings: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        found.setdefault(" ".join(f"{setting}={row[setting]}" for setting in settings), []).append(row)
    return found


def _measured(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def blank(width: float, height: float) -> Any:
    """A figure to draw on."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Misuse("--plot needs matplotlib; install seep[dev]") from None
    return Figure(figsize=(width, height), layout="constrained")


def check_drawable(path: Path) -> None:
    """Refuse a file that no picture can be written as, before anything is measured."""
    ending = path.suffix
    if ending and ending[1:].lower() not in blank(1, 1).canvas.get_supported_filetypes():
        raise Misuse(
            f"--plot {path}: no picture ends in {ending}; give a file such as {path.stem}.png or {path.stem}.svg"
        )


def compared(path: Path, title: str, runs: Sequence[Mapping[str, Any]]) -> None:
    """Rows a second of each run and of its peers, as bars on a logarithmic scale."""
    labels = [run["name"] for run in runs]
    engines = ["seep", *dict.fromkeys(peer for run in runs for peer in run.get("peers", {}))]
    figure = blank(max(6, 2.2 * len(runs)), 4.5)
    axes: Any = figure.subplots()
    width = 0.8 / len(engines)
    for number, engine in enumerate(engines):
        answers = [run if engine == "seep" else run.get("peers", {}).get(engine, {}) for run in runs]
        heights = [answer.get("rows_per_second", float("nan")) for answer in answers]
        axes.bar(np.arange(len(runs)) + (number - (len(engines) - 1) / 2) * width, heights, width, label=engine)
    axes.set(xticks=range(len(runs)), xticklabels=labels, ylabel="rows a second", yscale="log")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def _finite(values: Sequence[float]) -> Any:
    known = np.asarray(values, float)
    return known[np.isfinite(known)]


def policies(path: Path, title: str, rates: Sequence[float], reports: Mapping[str, Report]) -> None:
    """What policies made of a load, over one clock: the load, partitions, and how long rows waited."""
    figure = blank(10, 8)
    load, partitions, lag = figure.subplots(3, 1, sharex=True)
    load.plot(rates, color="black", linewidth=0.8)
    load.set(ylabel="rows a second")
    for name, report in reports.items():
        total = np.sum(list(report.partitions.values()), axis=0)
        partitions.plot(total, drawstyle="steps-post", label=f"{name} (cost {report.cost_ratio:.2f})")
        lag.plot(report.lag_seconds, label=f"{name} (late {report.missed_share:.1%})")
    partitions.set(ylabel="partitions")
    lag.set(ylabel="lag, seconds", xlabel="seconds")
    for one in (load, partitions, lag):
        one.grid(alpha=0.3)
    for one in (partitions, lag):
        one.legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
