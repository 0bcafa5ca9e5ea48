"""The benchmarks by name, loaded when one is asked for; several runs of one as one result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.own import rehearse, workload_named
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
PLACES = ("local", "spark", "ray")
PARTS = {"kafka": ("decode", "topics"), "overhead": ("checkpoints", "metrics"), "rescale": ("upgrade",)}
"""Benchmarks of which a part can be run alone."""
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
        rehearse(workload_named(name), name)
    elif name not in NAMES:
        raise Misuse(f"no benchmark {name!r}; there are: {', '.join(NAMES)}; or module:Class, a workload of your own")
    if options.on not in PLACES:
        raise Misuse(f"--on {options.on}: benchmarks run on: {', '.join(PLACES)}")
    if options.part is not None and options.part not in PARTS.get(name, ()):
        has = f"it has: {', '.join(PARTS[name])}" if name in PARTS else f"those with parts are: {', '.join(PARTS)}"
        raise Misuse(f"{name} has no part {options.part!r}; {has}")
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
    figures = _middle("", [run.figures for run in runs])
    series = {
        name: [value for run in runs for value in run.series.get(name, ())] for name in _names(r.series for r in runs)
    }
    settings = {**runs[0].settings, "repeat": len(runs)}
    notes = list(dict.fromkeys(note for run in runs for note in run.notes))
    return Outcome(runs[0].name, settings, all(run.verified for run in runs), figures, series, notes)


def _middle(name: str, values: Sequence[Any]) -> Any:
    """
    >>> _middle("gap_ms", [{"p50": 1}, {"p50": 5}, {"p50": 2}]), _middle("lost", [0, 3, 0])
    ({'p50': 2}, 3)
    >>> _middle("rows_out", [10, 13])
    12
    >>> _middle("polars", [{"verified": True, "how": "lazy"}, {"verified": False, "how": "lazy"}])
    {'verified': False, 'how': 'lazy'}
    """
    first = values[0]
    if isinstance(first, Mapping):
        # What a run does not have (nothing to measure, a peer that failed in it), others may have.
        return {key: _middle(key, [value[key] for value in values if key in value]) for key in _names(values)}
    if all(isinstance(value, bool) for value in values):
        return all(values)
    if all(isinstance(value, int | float) for value in values):
        found = max(values) if name in WORST else median(values)
        return round(found) if all(isinstance(value, int) for value in values) else found
    return first if all(value == first for value in values) else list(values)


def _names(values: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for value in values for name in value))
