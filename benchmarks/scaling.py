"""`scaling`: keyed windows with one worker and with two, over few rows and many, with few keys and many, in short
epochs and long ones.

One thing is changed at a time; the first run of all is the common one. With a number of rows the clock runs from the
first read to the last arrival, without warm-up: the time should grow with the rows, the memory should not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.throughput import run as measure
from benchmarks.workloads.windows import KEYED_WINDOW

SECONDS = 15.0
RUNS: dict[str, dict[str, int | str]] = {
    "2 workers, 1000 keys, 50ms": {},
    "1 worker": {"workers": 1},
    "1000000 rows": {"rows": 1_000_000},
    "10000000 rows": {"rows": 10_000_000},
    "100000000 rows": {"rows": 100_000_000},
    "100000 keys": {"keys": 100_000},
    "1000000 keys": {"keys": 1_000_000},
    "10000000 keys": {"keys": 10_000_000},
    "epoch 5ms": {"epoch": "5ms"},
    "epoch 10ms": {"epoch": "10ms"},
    "epoch 200ms": {"epoch": "200ms"},
    "epoch 1s": {"epoch": "1s"},
}
FIGURES = ("rows_per_second", "seconds", "cpu_seconds_per_10m_rows", "peak_memory_bytes", "latency_ms")


def run(options: Options, tell: Tell) -> Outcome:
    found: dict[str, Outcome] = {}
    for number, (name, change) in enumerate(RUNS.items()):
        tell(name, number / len(RUNS))
        asked: Any = {"peers": (), "seconds": options.seconds or SECONDS, **change}
        if options.rows is not None and "rows" in change:
            asked["rows"] = min(asked["rows"], options.rows)
        if options.keys is not None and "keys" in change:
            asked["keys"] = min(asked["keys"], options.keys)
        found[name] = measure(KEYED_WINDOW, replace(options, **{"rows": None, "keys": None, **asked}), _quiet)
    first, one = (found[name].figures["rows_per_second"] for name in list(RUNS)[:2])
    return Outcome(
        "scaling",
        {"on": options.on, "seed": options.seed, "seconds": options.seconds or SECONDS},
        all(outcome.verified for outcome in found.values()),
        {
            "speedup_ratio": round(first / one, 3),
            **{figure: {name: one.figures[figure] for name, one in found.items()} for figure in FIGURES},
        },
    )


def _quiet(what: str, share: float) -> None:
    """The run as a whole shows its progress."""
