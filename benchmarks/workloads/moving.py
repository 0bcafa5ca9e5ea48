"""Windows that move with the rows: `sliding`, ten seconds each second, and `session`, bursts of a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import seep
from benchmarks.workload import LAP_US, Workload
from benchmarks.workloads.windows import DISORDER_US, SECOND_US, Sales, names_of

SLIDING_KEYS = 1_000
SESSION_KEYS = 100_000
PANES = 10
GAP_US = 500_000
TURNS = 10


@dataclass(frozen=True)
class Bursts:
    """A tenth of the keys at a time, for a second each: with the disorder a burst of a key lasts three seconds, and
    seven pass until the next, so that no session is longer than a lap."""

    keys: int

    def __call__(self, split: int, rows: int, seed: int) -> pa.RecordBatch:
        rng = np.random.default_rng([seed, split])
        even = np.arange(rows) * LAP_US // rows
        drawn = rng.integers(0, self.keys // TURNS, rows) * TURNS + even // SECOND_US % TURNS
        return pa.record_batch(
            {
                "store": names_of(self.keys).take(pa.array(drawn)),
                "at": even + rng.integers(0, DISORDER_US, rows),
                "amount": rng.integers(0, 10_000, rows),
            }
        )


def _sliding(streams: Mapping[str, seep.Stream]) -> Any:
    return (
        streams["sales"]
        .key_by("store")
        .window(
            seep.sliding("10s", every="1s"),
            items=seep.count(),
            revenue=seep.total("amount"),
            largest=seep.maximum("amount"),
        )
    )


def _sliding_answer(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    panes = (
        frames["sales"]
        .group_by("store", pane=pl.col("at").dt.truncate("1s"))
        .agg(items=pl.len().cast(pl.Int64), revenue=pl.col("amount").sum(), largest=pl.col("amount").max())
    )
    back = pl.lit(list(range(PANES)), pl.List(pl.Int64))
    return (
        panes.with_columns(back=back)
        .explode("back")
        .group_by("store", window_start=pl.col("pane") - pl.duration(seconds=pl.col("back")))
        .agg(pl.col("items").sum(), pl.col("revenue").sum(), pl.col("largest").max())
    )


def _session(streams: Mapping[str, seep.Stream]) -> Any:
    return (
        streams["sales"].key_by("store").window(seep.session("500ms"), items=seep.count(), revenue=seep.total("amount"))
    )


def _session_answer(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    gap = pl.duration(microseconds=GAP_US)
    rows = frames["sales"].sort("store", "at")
    begins = (pl.col("at") - pl.col("at").shift() >= gap) | (pl.col("store") != pl.col("store").shift())
    return (
        rows.with_columns(number=begins.fill_null(True).cum_sum())
        .group_by("number")
        .agg(
            store=pl.col("store").first(),
            window_start=pl.col("at").min(),
            window_end=pl.col("at").max() + gap,
            items=pl.len().cast(pl.Int64),
            revenue=pl.col("amount").sum(),
        )
    )


SLIDING = Workload(
    "sliding",
    "windows of ten seconds, one each second, over 1,000 string keys",
    rows=10_000_000,
    lap_rows=1_000_000,
    blocks={"sales": Sales(SLIDING_KEYS)},
    build=_sliding,
    answer=_sliding_answer,
    sql="""
        with panes as (select store, date_trunc('second', "at") as pane, count(*) as items, sum(amount) as revenue,
                              max(amount) as largest from sales group by all)
        select store, pane - to_seconds(back) as window_start, sum(items)::bigint as items,
               sum(revenue)::bigint as revenue, max(largest) as largest
        from panes, range(10) as steps(back) group by all
    """,
    columns=("store", "window_start", "items", "revenue", "largest"),
    time="window_start",
    reach_us=PANES * SECOND_US,
    settings={"keys": SLIDING_KEYS, "window_ms": 10_000, "every_ms": 1000, "disorder_ms": DISORDER_US // 1000},
)
SESSION = Workload(
    "session",
    "sessions with a gap of half a second over 100,000 string keys",
    rows=10_000_000,
    lap_rows=1_000_000,
    blocks={"sales": Bursts(SESSION_KEYS)},
    build=_session,
    answer=_session_answer,
    sql="""
        with marked as (select *, "at" - lag("at") over key >= interval 500 milliseconds as begins
                        from sales window key as (partition by store order by "at")),
        numbered as (select *, count(*) filter (begins) over (partition by store order by "at"
                     rows unbounded preceding) as number from marked)
        select store, min("at") as window_start, max("at") + interval 500 milliseconds as window_end,
               count(*) as items, sum(amount)::bigint as revenue
        from numbered group by store, number
    """,
    columns=("store", "window_start", "window_end", "items", "revenue"),
    time="window_start",
    reach_us=4 * SECOND_US,
    settings={"keys": SESSION_KEYS, "gap_ms": GAP_US // 1000, "disorder_ms": DISORDER_US // 1000},
)
