"""The benchmarks by name, loaded when one is asked for; several runs of one as one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.outcome import Options, Outcome, Tell
from seep.errors import Misuse

MODULES = {
    "keyed-window": "benchmarks.window",
    "overhead": "benchmarks.overhead",
    "recovery": "benchmarks.recovery",
    "rescale": "benchmarks.rescale",
    "skew": "benchmarks.skew",
    "zombie": "benchmarks.zombie",
}
WORST = frozenset({"lost", "duplicated", "reordered", "wrong"})
"""Of several runs the greatest counts, not the median: one wrong row is not made good by two clean runs."""


def measure(name: str, options: Options, repeat: int, tell: Tell) -> Outcome:
    """Run a benchmark so many times; figures are medians over the runs."""
    if name not in MODULES:
        raise Misuse(f"no benchmark {name!r}; there are: {', '.join(MODULES)}")
    runs = []
    for number in range(repeat):

        def part(what: str, share: float, number: int = number) -> None:
            tell(what, (number + share) / repeat)

        runs.append(import_module(MODULES[name]).run(options, part))
    return runs[0] if repeat == 1 else together(runs)


def together(runs: Sequence[Outcome]) -> Outcome:
    figures = {name: _middle(name, [run.figures[name] for run in runs]) for name in runs[0].figures}
    series = {name: [value for run in runs for value in run.series[name]] for name in runs[0].series}
    settings = {**runs[0].settings, "repeat": len(runs)}
    return Outcome(runs[0].name, settings, all(run.verified for run in runs), figures, series)


def _middle(name: str, values: Sequence[Any]) -> Any:
    """
    >>> _middle("gap_ms", [{"p50": 1}, {"p50": 5}, {"p50": 2}]), _middle("lost", [0, 3, 0])
    ({'p50': 2}, 3)
    """
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _middle(key, [value[key] for value in values if key in value]) for key in first}
    if isinstance(first, int | float):
        return max(values) if name in WORST else median(values)
    return list(values)
