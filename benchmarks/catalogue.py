"""The benchmarks by name, loaded when one is asked for; several runs of one as one result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.own import workload_named
from seep.errors import Misuse

MODULES = {
    "elasticity": "benchmarks.elasticity",
    "exactly-once": "benchmarks.exactlyonce",
    "kafka": "benchmarks.kafka",
    "large-state": "benchmarks.state",
    "latency": "benchmarks.latency",
    "overhead": "benchmarks.overhead",
    "policies": "benchmarks.policies",
    "recovery": "benchmarks.recovery",
    "rescale": "benchmarks.rescale",
    "savepoint": "benchmarks.savepoint",
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
CHANGED = {"elasticity": frozenset({"flink"})}
"""Benchmarks with peers that are changed while they run, and which."""
PEERED = (*THROUGHPUT, *CHANGED, "kafka")
NAMES = (*THROUGHPUT, *MODULES)
COMMON = frozenset({"seed"})
OF_THROUGHPUT = frozenset({"checkpoint", "epoch", "keys", "rate", "rows", "seconds", "workers"})
HEEDED = {
    "elasticity": frozenset({"policy", "rate", "seconds"}),
    "exactly-once": frozenset({"checkpoint", "epoch", "kills", "rate", "workers"}),
    "kafka": frozenset({"checkpoint", "epoch", "rows", "workers"}),
    "large-state": frozenset({"keys", "state"}),
    "latency": frozenset({"checkpoint", "epoch", "keys", "rate", "seconds", "workers"}),
    "overhead": frozenset({"kills", "seconds"}),
    "policies": frozenset({"rate"}),
    "recovery": frozenset({"checkpoint", "epoch", "kills", "rate", "state", "workers"}),
    "rescale": frozenset({"checkpoint", "epoch", "kills", "rate", "seconds", "state", "workers"}),
    "savepoint": frozenset({"checkpoint", "epoch", "kills", "rate", "seconds", "state", "workers"}),
    "scaling": frozenset({"keys", "rows", "seconds"}),
    "skew": frozenset({"kills", "rows"}),
    "start": frozenset({"kills"}),
    "zombie": frozenset({"checkpoint", "epoch", "kills", "rate", "seconds", "state", "workers"}),
}
"""By benchmark: what it can be swept over, besides `COMMON`; what it would pass over is refused."""
HERE = frozenset({"large-state", "policies", "start"})
"""Benchmarks that know no other place than this machine."""
WORST = frozenset({"lost", "duplicated", "reordered", "wrong"})
"""Of several runs the greatest counts, not the median: one wrong row is not made good by two clean runs."""


def measure(name: str, options: Options, repeat: int, tell: Tell) -> Iterator[Outcome]:
    """Run a benchmark so many times."""
    for number in range(repeat):

        def part(what: str, share: float, number: int = number) -> None:
            tell(what, (number + share) / repeat)

        yield _once(name, options, part)


def check(name: str, options: Options, swept: Iterable[str] = ()) -> None:
    """Refuse what cannot be run before anything runs. `swept`: the settings that are."""
    own = ":" in name
    if own:
        workload_named(name)
    elif name not in NAMES:
        raise Misuse(f"no benchmark {name!r}; there are: {', '.join(NAMES)}; or module:Class, a workload of your own")
    if options.peers and name not in PEERED:
        raise Misuse(f"{name} has no peers; there are some for: {', '.join(PEERED)}")
    if name in CHANGED and set(options.peers) - CHANGED[name]:
        raise Misuse(f"{name} has as peers: {', '.join(sorted(CHANGED[name]))}")
    if name in HERE and options.on != "local":
        raise Misuse(f"{name} runs on local only, not on {options.on}")
    heeded = HEEDED.get(name, OF_THROUGHPUT) | COMMON
    for setting in swept:
        if setting not in heeded:
            raise Misuse(f"{name} does not depend on {setting}; it can be swept over: {', '.join(sorted(heeded))}")


def _once(name: str, options: Options, tell: Tell) -> Outcome:
    if name in THROUGHPUT or ":" in name:
        from benchmarks.throughput import run
        from benchmarks.workloads import WORKLOADS

        return run(WORKLOADS[name] if name in WORKLOADS else workload_named(name), options, tell)
    outcome: Outcome = import_module(MODULES[name]).run(options, tell)
    return outcome


def together(runs: Sequence[Outcome]) -> Outcome:
    """As one: figures are medians over the runs."""
    if len(runs) == 1:
        return runs[0]
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
