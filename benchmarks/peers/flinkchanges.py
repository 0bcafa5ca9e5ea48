"""Flink while it is changed: rescaled in place by its adaptive scheduler, and a task manager killed.

The same load as seep's (`benchmarks.changes`), the same two keyed operators with a re-key between them. Flink's sink
does not wait for checkpoints, so what is replayed comes out again; the oracle wants every row at least once, and every
one of them right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.load import Load, place_in_split, split_of
from benchmarks.outcome import Tell
from benchmarks.peers import Unable
from benchmarks.peers.flink import version
from benchmarks.peers.flinkcluster import Cluster
from benchmarks.silence import Change, around
from benchmarks.verdict import Oracle
from seep.connectors.generator import SPLITS

TASK_MANAGERS = 3
"""Of two slots: one is there for what another has lost."""
PARALLELISM = (2, 4)
CHECKPOINT_MS = 5_000
LEAD_SECONDS = 8.0
"""From giving the job to the cluster until the load begins."""
WARM_SECONDS = 20.0
AFTER_SECONDS = 10.0
CHANGING_SECONDS = 120.0
ENDING_SECONDS = 60.0
ROW = np.dtype([(name, ">i8") for name in ("at_ns", "number", "changes", "n", "total", "counted")])
ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "1s",
}
TUNED = {"heartbeat.interval": "500", "heartbeat.timeout": "4000"}
HOW = (
    "standalone cluster, 3 task managers of 2 slots, DataStream, parallelism 2, state on the heap, exactly once in"
    " state and at least once at the sink; rescale: adaptive scheduler, waits of 1 s; kill: default scheduler"
)
Rows = npt.NDArray[Any]


def measure(load: Load, rate: float, home: Path, tell: Tell) -> dict[str, Any]:
    """What each change did to the output, and whether it was right all along; or why it cannot be said."""
    plans: dict[str, tuple[dict[str, str], Callable[[Cluster, str], Change]]] = {
        "rescale": (ADAPTIVE, _rescale),
        "kill_tuned": (TUNED, _kill),
        "kill": ({}, _kill),
    }
    found: dict[str, Any] = {"version": version(), "how": HOW}
    verified = True
    for place, (name, (settings, change)) in enumerate(plans.items()):
        tell(f"Flink, {name}", place / len(plans))
        try:
            figures = _one(load, rate, home / f"flink-{name}", settings, change)
        except Unable as problem:
            return {"unavailable": str(problem)}
        verified = verified and not (figures["lost"] or figures["wrong"])
        found[name] = figures
    return {**found, "verified": verified}


def _one(
    load: Load, rate: float, home: Path, settings: dict[str, str], change: Callable[[Cluster, str], Change]
) -> dict[str, Any]:
    home.mkdir()
    cluster = Cluster(home, settings, TASK_MANAGERS)
    try:
        cluster.until_ready()
        began_ns, began_ms = time.monotonic_ns() + int(LEAD_SECONDS * 1e9), int((time.time() + LEAD_SECONDS) * 1000)
        given = {
            "home": home,
            "keys": load.keys,
            "seed": load.seed,
            "rate": rate,
            "began_ms": began_ms,
            "parallelism": PARALLELISM[0],
            "checkpoint_ms": CHECKPOINT_MS,
        }
        job = cluster.submit("Elastic", given)
        cluster.until(lambda: cluster.runs(job), "the job", CHANGING_SECONDS)
        time.sleep(max(0.0, began_ns / 1e9 + WARM_SECONDS - time.monotonic()))
        cluster.until(lambda: cluster.completed_checkpoints(job) > 0, "a checkpoint", CHANGING_SECONDS)
        made = change(cluster, job)
        (home / "stop").touch()
        cluster.until(lambda: cluster.state(job) == "FINISHED", "the end of the job", ENDING_SECONDS)
    finally:
        cluster.close()
    rows = np.concatenate([np.fromfile(file, ROW) for file in sorted(home.glob("out-*"))])
    split_rows = {split: int((home / f"given-{split}").read_text()) for split in range(SPLITS)}
    numbers = rows["number"].astype(np.int64)
    released_ns = began_ns + place_in_split(numbers) / (rate / SPLITS) * 1e9
    at_ns = rows["at_ns"].astype(np.int64)
    return {**around(at_ns, (at_ns - released_ns) / 1e6, made), **judge(load, split_rows, rows)}


def _rescale(cluster: Cluster, job: str) -> Change:
    at_ns = cluster.rescale(job, "first", PARALLELISM[1])

    def done() -> bool:
        sizes = [v["parallelism"] for name, v in cluster.vertices(job).items() if name.startswith("first")]
        return sizes == [PARALLELISM[1]] and cluster.runs(job)

    cluster.until(done, "the rescale", CHANGING_SECONDS)
    return _after("rescale", at_ns)


def _kill(cluster: Cluster, job: str) -> Change:
    at_ns = cluster.kill(job)
    cluster.until(lambda: cluster.runs(job), "running again", CHANGING_SECONDS)
    return _after("kill", at_ns)


def _after(what: str, at_ns: int) -> Change:
    time.sleep(AFTER_SECONDS)
    return Change(what, at_ns, time.monotonic_ns())


def judge(load: Load, given: dict[int, int], rows: Rows) -> dict[str, int]:
    """Every row that was given must have come out, and every time with the right sums."""
    oracle = Oracle(load, given)
    numbers = rows["number"].astype(np.int64)
    unique, first = np.unique(numbers, return_index=True)
    ahead = np.zeros(SPLITS, np.int64)
    ahead[list(given)] = list(given.values())
    known = place_in_split(unique) < ahead[split_of(unique)]
    n = _ranks(load.key_of(unique), unique)
    place = np.searchsorted(unique, numbers)
    keys = load.key_of(numbers)
    right = (
        (rows["n"] == n[place]) & (rows["changes"] == n[place]) & (rows["counted"] == n[place] * (n[place] + 1) // 2)
    )
    right &= rows["total"] == oracle.totals(keys, n[place])
    return {
        "lost": oracle.rows - int(known.sum()),
        "wrong": int((~right).sum()) + int((~known).sum()),
        "replayed": len(numbers) - len(first),
        "rows_in": oracle.rows,
    }


def _ranks(keys: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many rows of its key there are up to each, itself included. Numbers of a key ascend in the order given."""
    order = np.lexsort((numbers, keys))
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(ordered)])
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(starts, lengths) + 1
    return ranks
