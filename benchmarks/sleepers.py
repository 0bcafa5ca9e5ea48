"""Operators that are asleep while they work, so that many of them run on few cores; and a load that changes.

A row is a number with a key. A sleeper takes a fixed time for each row of a batch: how many rows one partition can take
in a second is known before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import seep
from benchmarks.arrivals import ArrivalSink, epochs_of, read_file
from benchmarks.load import SmallReads, numbers_of_split
from seep.connectors.generator import BLOCK_ROWS, SPLITS

KEYS = 1_000
READ_ROWS = 100
"""Of one split for one epoch, as brokers bound what they give: with 8 splits and 50 ms, 16,000 rows a second."""
SCHEMA = pa.schema({"key": pa.string(), "newest": pa.int64()})


def numbers(first: int, count: int) -> pa.RecordBatch:
    newest = np.arange(first, first + count)
    keys = [f"k{key}" for key in (newest * 7919 % KEYS).tolist()]
    return pa.record_batch([pa.array(keys), pa.array(newest)], schema=SCHEMA)


class Stepped(SmallReads):
    """So many rows a second at first, and `factor` times as many while (from, to) seconds have passed."""

    read_rows = READ_ROWS

    def __init__(self, rate: float, factor: float = 1.0, between: tuple[float, float] = (0.0, 0.0)) -> None:
        super().__init__(fn_batch=numbers, rate=rate, schema=SCHEMA)
        self.factor, self.between = factor, between

    def _released(self, elapsed_ms: int) -> int:
        return 1 + int(self.released(elapsed_ms / 1000) / SPLITS)

    def released(self, seconds: float) -> float:
        """Rows in all, so long after the first."""
        assert self.rate is not None
        begin, end = self.between
        more = max(0.0, min(seconds, end) - begin)
        return self.rate * (seconds + (self.factor - 1) * more)


class Sleeper(seep.BatchOperator):
    def __init__(self, seconds_per_row: float) -> None:
        self.seconds_per_row = seconds_per_row

    def on_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        time.sleep(batch.num_rows * self.seconds_per_row)
        ctx.emit(batch)


def flow_of(
    name: str, source: Stepped, rates: Mapping[str, float], starts: Mapping[str, int], policy: Any, path: Path
) -> seep.Flow:
    """A chain of sleepers, each of which takes so many rows a second in one partition."""
    flow = seep.Flow(name, epoch="50ms", checkpoint="2s")
    rows: Any = flow.source("rows", source)
    for stage, rate in rates.items():
        sleeper = rows.key_by("key").apply(Sleeper(1 / rate), out=SCHEMA).named(stage)
        rows = sleeper.scale(start=starts.get(stage, 1), max=12, policy=policy)
    rows.sink("out", ArrivalSink(path))
    return flow


def verdict(path: Path, given: Mapping[int, int]) -> dict[str, int]:
    """Rows missing of those that the splits have given, rows that came twice, and rows that came before an earlier one
    of their key."""
    seen: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    last: dict[str, int] = {}
    reordered = 0
    for _, _, file in epochs_of(path):
        record = read_file(file)
        found = record.column("newest").to_numpy()
        seen.append(found)
        keys = record.column("key").to_pylist()
        for key, number in zip(keys, found.tolist(), strict=True):
            # The splits of the source are read side by side: order is kept inside each.
            place = f"{key} {number // BLOCK_ROWS % SPLITS}"
            reordered += number < last.get(place, -1)
            last[place] = max(number, last.get(place, -1))
    every = np.concatenate(seen) if seen else np.empty(0, np.int64)
    wanted = np.concatenate([numbers_of_split(split, rows) for split, rows in given.items()])
    return {
        "rows_out": len(every),
        "lost": len(np.setdiff1d(wanted, every)),
        "duplicated": len(every) - len(np.unique(every)),
        "reordered": reordered,
    }
