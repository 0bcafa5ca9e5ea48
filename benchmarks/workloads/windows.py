"""Windows by key: tumbling, over few keys and over many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import seep
from benchmarks.workload import LAP_US, Workload

DISORDER_US = 2_000_000
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Sales:
    """Sales of so many stores, evenly over the lap, each up to ``disorder_us`` late."""

    keys: int
    disorder_us: int = DISORDER_US

    def __call__(self, split: int, rows: int, seed: int) -> pa.RecordBatch:
        rng = np.random.default_rng([seed, split])
        even = np.arange(rows) * LAP_US // rows
        return pa.record_batch(
            {
                "store": names_of(self.keys).take(pa.array(rng.integers(0, self.keys, rows))),
                "at": even + rng.integers(0, self.disorder_us, rows),
                "amount": rng.integers(0, 10_000, rows),
            }
        )


@cache
def names_of(keys: int) -> pa.Array:
    width = len(str(keys))
    return pa.array([f"store-{number:0{width}d}" for number in range(keys)])


def _tumbling(streams: Mapping[str, seep.Stream]) -> Any:
    return (
        streams["sales"]
        .key_by("store")
        .window(seep.tumbling("1s"), items=seep.count(), revenue=seep.total("amount"), largest=seep.maximum("amount"))
    )


def _tumbling_answer(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    return (
        frames["sales"]
        .group_by("store", window_start=pl.col("at").dt.truncate("1s"))
        .agg(
            items=pl.len().cast(pl.Int64),
            revenue=pl.col("amount").sum(),
            largest=pl.col("amount").max(),
        )
    )


def keyed_window(name: str, about: str, keys: int) -> Workload:
    return Workload(
        name,
        about,
        rows=10_000_000,
        lap_rows=1_000_000,
        blocks={"sales": Sales(keys)},
        build=_tumbling,
        answer=_tumbling_answer,
        sql="select store, date_trunc('second', \"at\") as window_start, count(*) as items, "
        "sum(amount)::bigint as revenue, max(amount) as largest from sales group by all",
        columns=("store", "window_start", "items", "revenue", "largest"),
        time="window_start",
        reach_us=SECOND_US,
        settings={"keys": keys, "window_ms": 1000, "disorder_ms": DISORDER_US // 1000},
        keyed=partial(keyed_window, name, about),
    )


KEYED_WINDOW = keyed_window("keyed-window", "one-second windows over 1,000 string keys", 1_000)
KEYED_WINDOW_LARGE = keyed_window("keyed-window-large", "one-second windows over 1,000,000 string keys", 1_000_000)
