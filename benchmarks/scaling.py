"""`scaling`: keyed windows with one worker and with two, with few keys and many, in short epochs and long ones.

One thing is changed at a time; the first run of all is the common one.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.outcome import Options, Outcome, Tell
from benchmarks.throughput import run as measure
from benchmarks.workloads.windows import KEYED_WINDOW

RUNS: dict[str, dict[str, int | str]] = {
    "2 workers, 1000 keys, 50ms": {},
    "1 worker": {"workers": 1},
    "100000 keys": {"keys": 100_000},
    "1000000 keys": {"keys": 1_000_000},
    "epoch 10ms": {"epoch": "10ms"},
    "epoch 200ms": {"epoch": "200ms"},
}


def run(options: Options, tell: Tell) -> Outcome:
    found = {}
    for number, (name, change) in enumerate(RUNS.items()):
        tell(name, number / len(RUNS))
        chosen = replace(options, peers=(), **change)  # type: ignore[arg-type]
        found[name] = measure(KEYED_WINDOW, chosen, lambda what, share: None)
    first, one = (found[name].figures["rows_per_second"] for name in list(RUNS)[:2])
    return Outcome(
        "scaling",
        {"on": options.on, "seed": options.seed},
        all(outcome.verified for outcome in found.values()),
        {
            "speedup_ratio": round(first / one, 3),
            **{
                figure: {name: outcome.figures[figure] for name, outcome in found.items()}
                for figure in ("rows_per_second", "cpu_seconds_per_10m_rows", "latency_ms")
            },
        },
    )
