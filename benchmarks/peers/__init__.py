"""Other engines on the same rows, each behind one small adapter: a process of its own that reads the data, says how
fast it was and what it cost, and gives a digest of its result.

An adapter is a module with a function ``main(spec)``, run as ``python -m benchmarks.peers NAME SPEC``. `Spec` says what
to do; what the adapter prints last is one JSON object (`rows_per_second`, `cpu_seconds_per_10m_rows`, `given`,
`rows_out`, `digest`, `version`, `how`). One that cannot run here is reported with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.digest import Digest
from benchmarks.looped import BASE_US, SPLITS
from benchmarks.measured import Plan
from benchmarks.oracle import expected
from benchmarks.outcome import Tell
from benchmarks.workload import LAP_US, Workload
from benchmarks.workloads import WORKLOADS
from seep.errors import Misuse

PEERS = ("flink", "timely", "timely-fixed", "spark", "bytewax", "pathway", "quix", "kafka-streams", "polars", "duckdb")
PATIENCE_SECONDS = 1800.0


class Unable(Exception):
    """This engine cannot do this workload, or cannot be had here; the text says why."""


@dataclass(frozen=True)
class Spec:
    """What an adapter is told."""

    workload: str
    lap_rows: int
    seed: int
    rows: int
    """Of each source, for an engine that takes the whole data at once, or for a run that ends."""
    bounded: bool
    """Give so many rows and no more; else loop until the time is over."""
    warm_seconds: float
    seconds: float
    home: str
    base_us: int = BASE_US
    lap_us: int = LAP_US
    splits: int = SPLITS
    parallelism: int = 2
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Workload:
        """The workload it is about."""
        found = WORKLOADS[self.workload]
        if found.keyed is not None:
            found = found.keyed(self.settings["keys"])
        return found.with_lap(self.lap_rows)


def known_peers(names: str) -> tuple[str, ...]:
    """
    >>> known_peers("duckdb, polars")
    ('duckdb', 'polars')
    """
    chosen = PEERS if names == "all" else tuple(name.strip() for name in names.split(",") if name.strip())
    for name in chosen:
        if name not in PEERS:
            raise Misuse(f"no peer {name!r}; there are: {', '.join(PEERS)}, or all")
    return chosen


def adapter(peer: str) -> ModuleType:
    """
    >>> adapter("timely-fixed").__name__
    'benchmarks.peers.timely_fixed'
    """
    return import_module(f"benchmarks.peers.{peer.replace('-', '_')}")


def compare(workload: Workload, plan: Plan, peers: Sequence[str], home: Path, tell: Tell) -> dict[str, Any]:
    found = {}
    for number, peer in enumerate(peers, 1):
        tell(f"{workload.name}: {peer}", number / (1 + len(peers)))
        found[peer] = ask(peer, workload, plan, home)
    return found


def ask(peer: str, workload: Workload, plan: Plan, home: Path) -> dict[str, Any]:
    """Run an adapter and compare its result with the oracle."""
    spec = Spec(
        workload.name,
        workload.lap_rows,
        plan.seed,
        plan.rows or workload.rows,
        plan.rows is not None,
        plan.warm_seconds,
        plan.seconds,
        str(home),
        settings=dict(workload.settings),
    )
    path = home / f"{peer}.json"
    path.write_text(json.dumps(asdict(spec)))
    command = [sys.executable, "-m", "benchmarks.peers", peer, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"unavailable": f"no answer within {PATIENCE_SECONDS:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"unavailable": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    said: dict[str, Any] = json.loads(lines[-1])
    if "unavailable" in said:
        return said
    given, result = said.pop("given"), Digest(said["rows_out"], int(said.pop("digest")))
    # Polars is the oracle of everybody else; its own is DuckDB.
    right = said.pop("right", None)
    truth = Digest(*right) if right is not None else expected(workload, given, plan.seed)
    return {**said, "verified": result.rows > 0 and result == truth}
