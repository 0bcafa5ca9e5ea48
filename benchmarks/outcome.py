"""What a benchmark is asked for, and what it gives back: one object, the figures with their unit last."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.machine import facts

Tell = Callable[[str, float], None]
"""(what is going on, share of the work that is done)"""


@dataclass(frozen=True)
class Options:
    """What the command line gives; None: the benchmark's own full size."""

    on: str = "local"
    kills: int | None = None
    rows: int | None = None
    rate: float | None = None
    seed: int = 42
    state_bytes: int = 0
    seconds: float | None = None
    peers: tuple[str, ...] = ()
    epoch: str | None = None
    checkpoint: str | None = None
    workers: int | None = None
    keys: int | None = None
    policy: Any = None
    starts: int | None = None
    """Of `policies`: from so many numbers of partitions."""
    part: str | None = None
    """Of a benchmark that has several: this one alone."""


@dataclass(frozen=True)
class Outcome:
    name: str
    settings: Mapping[str, Any]
    verified: bool
    figures: Mapping[str, Any]
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """For a picture: what was measured one by one."""
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "settings": dict(self.settings),
            "machine": facts(),
            "verified": self.verified,
            **_in_json(self.figures),
        }
        return found | {"notes": list(self.notes)} if self.notes else found


def _in_json(value: Any) -> Any:
    """JSON has no NaN and no infinity: there nothing was measured.

    >>> _in_json({"latency_ratio": float("inf"), "gap_ms": {"p50": 1.5}})
    {'latency_ratio': None, 'gap_ms': {'p50': 1.5}}
    """
    if isinstance(value, Mapping):
        return {name: _in_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and the greatest of what was measured.

    >>> spread([3.0, 1.0, 2.0])
    {'p50': 2.0, 'p90': 2.8, 'p99': 2.98, 'max': 3.0, 'count': 3}
    """
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if not len(known):
        return {"count": 0}
    ranks = dict(zip(("p50", "p90", "p99", "max"), np.percentile(known, [50, 90, 99, 100]).tolist(), strict=True))
    return {**{name: round(value, 2) for name, value in ranks.items()}, "count": len(known)}
