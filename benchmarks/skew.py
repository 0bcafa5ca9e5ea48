"""`skew`: keys by Zipf's law, and workers whose time goes by the row (they sleep): plain hashing against two choices.

    rows --by key, or two_choices--> work: sleeps for each row, 4 partitions --by key--> sums: n, total --> out

The rows are not folded before they come to `work`, so all of a hot key's rows go to one worker, or to two. Shares and
times are what the workers write down themselves; the sums are compared with numpy's. Two more workers have the source,
the sums and the sink: a source that shares its worker with one that sleeps sleeps, too.

`folded` is what pre-aggregation leaves of the skew: of each epoch's rows the senders send one for each key, so the
busiest of four equal ranges of keys gets this share of what is sent.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import seep
from benchmarks.drive import scratch
from benchmarks.outcome import Options, Outcome, Tell
from operators.combine import Combiner
from seep.flow.compile import compile_flow
from seep.model.ids import BUCKETS

ROWS = 200_000
KEYS = 10_000
EXPONENT = 1.4
WORKERS = 4
SEEDS = 5
ROW_SECONDS = 50e-6
PATIENCE_SECONDS = 300.0
GROUPINGS = ("plain", "two_choices")
EPOCH_ROWS = 4_000
"""About what four workers that sleep take in an epoch of 50 ms."""


def run(options: Options, tell: Tell) -> Outcome:
    rows = options.rows or ROWS
    seeds = [options.seed + number for number in range(SEEDS if options.kills is None else options.kills)]
    found: dict[str, list[_Run]] = {name: [] for name in GROUPINGS}
    for number, seed in enumerate(seeds):
        for at, name in enumerate(GROUPINGS):
            tell(f"{name}, seed {number + 1} of {len(seeds)}", (number + at / len(GROUPINGS)) / len(seeds))
            found[name].append(_Run(name, Zipf(seed), rows, options.on))
    share = {name: round(median(one.busiest_share for one in runs), 4) for name, runs in found.items()}
    folded = [_folded(Zipf(seed), rows) for seed in seeds]
    share["folded"] = round(median(busiest for busiest, _ in folded), 4)
    speed = {name: round(median(one.rows_per_second for one in runs)) for name, runs in found.items()}
    return Outcome(
        "skew",
        {
            "on": options.on,
            "workers": WORKERS,
            "rows": rows,
            "keys": KEYS,
            "exponent": EXPONENT,
            "row_us": ROW_SECONDS * 1e6,
            "pre_aggregation": False,
            "seeds": seeds,
        },
        all(one.verified for runs in found.values() for one in runs),
        {
            "busiest_share": share,
            "rows_per_second": speed,
            "speedup_ratio": round(speed["two_choices"] / speed["plain"], 3),
            "sent_ratio": round(median(sent for _, sent in folded), 4),
        },
        {f"{name} busiest_share": [one.busiest_share for one in runs] for name, runs in found.items()},
    )


@dataclass(frozen=True)
class Zipf:
    """Row ``i`` has always the same key and value."""

    seed: int

    def columns(self, first: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        weights = np.arange(1, KEYS + 1) ** -EXPONENT
        shares = np.cumsum(weights / weights.sum())
        # The rank says how often a key comes; a permutation keeps it from saying anything about its hash.
        names = np.random.default_rng(self.seed).permutation(KEYS)
        mixed = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(self.seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        ranks = np.searchsorted(shares, (mixed >> np.uint64(11)) / 2.0**53, side="right")
        return names[np.minimum(ranks, KEYS - 1)], (mixed % np.uint64(1000)).astype(np.int64)

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        """`fn_batch` of a GeneratorSource."""
        keys, values = self.columns(first, count)
        return pa.record_batch({"key": keys, "value": values})


@dataclass
class Slow:
    """Sleeps for each row, and writes down how many rows its process has had, and between when."""

    path: Path
    rows: int = 0
    began_ns: int = 0
    debt_seconds: float = 0.0
    note: int = -1

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.began_ns = self.began_ns or time.monotonic_ns()
        self.rows += batch.num_rows
        self.debt_seconds += batch.num_rows * ROW_SECONDS
        if self.debt_seconds > 0.002:  # shorter sleeps take longer than they are asked to
            begun = time.monotonic()
            time.sleep(self.debt_seconds)
            self.debt_seconds -= time.monotonic() - begun
        if self.note < 0:
            self.note = os.open(self.path / str(os.getpid()), os.O_WRONLY | os.O_CREAT)
        os.pwrite(self.note, b"%d %d %d" % (self.rows, self.began_ns, time.monotonic_ns()), 0)
        return batch


class _Run:
    """One flow from its first row to its last."""

    def __init__(self, grouping: str, load: Zipf, rows: int, on: str) -> None:
        with scratch() as home:
            notes = home / "notes"
            notes.mkdir()
            job = seep.start(_flow(grouping, load, rows, Slow(notes)), on=on, workers=WORKERS + 2)
            try:
                result = job.wait(PATIENCE_SECONDS)["out"]
            finally:
                job.close()
            told = [tuple(map(int, note.read_text().split())) for note in notes.iterdir()]
        taken, began, ended = zip(*told, strict=True)
        self.busiest_share = max(taken) / sum(taken)
        self.rows_per_second = rows / ((max(ended) - min(began)) / 1e9)
        self.verified = sum(taken) == rows and _sums(result) == _expected(load, rows)


def _flow(grouping: str, load: Zipf, rows: int, slow: Slow) -> seep.Flow:
    flow = seep.Flow(f"skew-{grouping}", epoch="50ms", checkpoint="5s")
    stream = flow.source("rows", seep.GeneratorSource(fn_batch=load.rows, rows=rows))
    # A route by the key is what key_by does, with a node in which to sleep.
    sent = stream.key_by("key").two_choices() if grouping == "two_choices" else stream.route(_key)
    worked = sent.named("work").scale(start=WORKERS).map_batch(slow)
    worked.key_by("key").aggregate("close", n=seep.count(), total=seep.total("value")).named("sums").collect("out")
    return flow


def _folded(load: Zipf, rows: int) -> tuple[float, float]:
    """What the busiest of four partitions gets of the rows that are sent when the senders fold them; and how many of
    all rows these are."""
    flow = seep.Flow("skew-folded")
    stream = flow.source("rows", seep.GeneratorSource(fn_batch=load.rows, rows=rows))
    stream.key_by("key").aggregate("close", n=seep.count(), total=seep.total("value")).named("sums").collect("out")
    sender = Combiner(compile_flow(flow).nodes["sums"].make.combine)
    taken = np.zeros(WORKERS, np.int64)
    for first in range(0, rows, EPOCH_ROWS):
        buckets = sender.fold(load.rows(first, min(EPOCH_ROWS, rows - first))).buckets
        taken += np.bincount(buckets // (BUCKETS // WORKERS), minlength=WORKERS)
    return float(taken.max() / taken.sum()), float(taken.sum() / rows)


def _key(row: Any) -> int:
    key: int = row.key
    return key


def _sums(table: pa.Table) -> dict[int, tuple[int, int]]:
    return {row["key"]: (row["n"], row["total"]) for row in table.to_pylist()}


def _expected(load: Zipf, rows: int) -> dict[int, tuple[int, int]]:
    keys, values = load.columns(0, rows)
    counts, totals = np.bincount(keys, minlength=KEYS), np.zeros(KEYS, np.int64)
    np.add.at(totals, keys, values)
    return {int(key): (int(counts[key]), int(totals[key])) for key in np.flatnonzero(counts)}
