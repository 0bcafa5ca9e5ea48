"""What was measured one by one, as a picture: a few lines of text, or a file drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seep.errors import Misuse

ROWS = 8
WIDTH = 40


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
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Misuse("--plot needs matplotlib; install seep[dev]") from None
    shown = {name: _finite(values) for name, values in series.items() if len(_finite(values))}
    figure = Figure(figsize=(9, 3.2 * max(1, len(shown))), layout="constrained")
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


def compared(path: Path, title: str, runs: Sequence[Mapping[str, Any]], sweep: str | None = None) -> None:
    """Rows a second of each run and of its peers, as bars on a logarithmic scale."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Misuse("--plot needs matplotlib; install seep[dev]") from None
    setting = (sweep or "").partition("=")
    labels = [f"{setting[0]}={value}" for value in setting[2].split(",")] if sweep else [run["name"] for run in runs]
    engines = ["seep", *dict.fromkeys(peer for run in runs for peer in run.get("peers", {}))]
    figure = Figure(figsize=(max(6, 2.2 * len(runs)), 4.5), layout="constrained")
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
