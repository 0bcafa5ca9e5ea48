"""The benchmarks by name, loaded when one is asked for; several runs of one as one result, and sweeps of a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.outcome import Options, Outcome, Tell
from seep.errors import Misuse

MODULES = {
    "elasticity": "benchmarks.elasticity",
    "large-state": "benchmarks.state",
    "latency": "benchmarks.latency",
    "overhead": "benchmarks.overhead",
    "policies": "benchmarks.policies",
    "recovery": "benchmarks.recovery",
    "rescale": "benchmarks.rescale",
    "scaling": "benchmarks.scaling",
    "skew": "benchmarks.skew",
    "start": "benchmarks.start",
    "zombie": "benchmarks.zombie",
}
THROUGHPUT = (
    "keyed-count",
    "keyed-window",
    "keyed-window-large",
    "window-join",
    "word-count",
    "sliding",
    "session",
    "interval-join",
    "distinct",
)
"""Workloads (`benchmarks.workloads`) as fast as they go; these have peers."""
NAMES = (*THROUGHPUT, *MODULES)
SWEPT: dict[str, Callable[[str], Any]] = {
    "checkpoint": str,
    "epoch": str,
    "keys": int,
    "kills": int,
    "rate": float,
    "rows": int,
    "seconds": float,
    "seed": int,
    "workers": int,
}
"""Settings that can be swept, and what their values are."""
WORST = frozenset({"lost", "duplicated", "reordered", "wrong"})
"""Of several runs the greatest counts, not the median: one wrong row is not made good by two clean runs."""


def measure(name: str, options: Options, repeat: int, tell: Tell) -> Outcome:
    """Run a benchmark so many times; figures are medians over the runs."""
    check(name, options)
    runs = []
    for number in range(repeat):

        def part(what: str, share: float, number: int = number) -> None:
            tell(what, (number + share) / repeat)

        runs.append(_once(name, options, part))
    return runs[0] if repeat == 1 else together(runs)


def check(name: str, options: Options) -> None:
    """Refuse what cannot be run before anything runs."""
    if name not in NAMES:
        raise Misuse(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
    if options.peers and name not in THROUGHPUT:
        raise Misuse(f"{name} has no peers; there are some for: {', '.join(THROUGHPUT)}")


def swept(options: Options, sweep: str) -> list[Options]:
    """
    >>> [one.checkpoint for one in swept(Options(), "checkpoint=1s,5s")]
    ['1s', '5s']
    """
    setting, _, values = sweep.partition("=")
    if setting not in SWEPT or not values:
        raise Misuse(f"--sweep {sweep!r}; give one such as checkpoint=1s,5s of: {', '.join(SWEPT)}")
    try:
        chosen = [SWEPT[setting](value.strip().replace("_", "")) for value in values.split(",")]
    except ValueError:
        raise Misuse(f"--sweep {sweep!r}: the values are no numbers") from None
    return [replace(options, **{setting: value}) for value in chosen]


def _once(name: str, options: Options, tell: Tell) -> Outcome:
    if name in THROUGHPUT:
        from benchmarks.throughput import run
        from benchmarks.workloads import WORKLOADS

        return run(WORKLOADS[name], options, tell)
    outcome: Outcome = import_module(MODULES[name]).run(options, tell)
    return outcome


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
