"""Joins of two streams by string key: `window-join` in ten-second windows, `interval-join` within a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

import seep
from benchmarks.workload import Workload
from benchmarks.workloads.windows import DISORDER_US, SECOND_US, Sales

KEYS = 100_000
COLUMNS = ("store", "at", "amount", "at_right", "price")


@dataclass(frozen=True)
class Offers:
    """As sales, of another seed and with a price."""

    keys: int

    def __call__(self, split: int, rows: int, seed: int) -> pa.RecordBatch:
        return Sales(self.keys)(split, rows, seed + 1).rename_columns(["store", "at", "price"])


def _window_join(streams: Mapping[str, seep.Stream]) -> Any:
    return streams["sales"].key_by("store").join(streams["offers"].key_by("store"), window=seep.tumbling("10s"))


def _interval_join(streams: Mapping[str, seep.Stream]) -> Any:
    return streams["sales"].key_by("store").join(streams["offers"].key_by("store"), within="1s")


def _window_answer(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    sales, offers = (frame.with_columns(window=pl.col("at").dt.truncate("10s")) for frame in _both(frames))
    return sales.join(offers, on=["store", "window"]).select(COLUMNS)


def _interval_answer(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    sales, offers = _both(frames)
    pairs = sales.join(offers, on="store").filter((pl.col("at_right") - pl.col("at")).abs() <= pl.duration(seconds=1))
    return pairs.select(COLUMNS)


def _both(frames: Mapping[str, pl.LazyFrame]) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    return frames["sales"], frames["offers"]


_SELECT = (
    'select s.store, s."at", s.amount, o."at" as at_right, o.price from sales s join offers o on s.store = o.store'
)


def _join(name: str, about: str, build: Any, answer: Any, near: str, reach_us: int, keys: int) -> Workload:
    return Workload(
        name,
        about,
        rows=2_000_000,
        lap_rows=100_000,
        blocks={"sales": Sales(keys), "offers": Offers(keys)},
        build=build,
        answer=answer,
        sql=f"{_SELECT} and {near}",
        columns=COLUMNS,
        time="at",
        reach_us=reach_us,
        settings={"keys": keys, "disorder_ms": DISORDER_US // 1000},
        keyed=partial(_join, name, about, build, answer, near, reach_us),
    )


WINDOW_JOIN = _join(
    "window-join",
    "pairs of two streams in the same ten-second window, by string key",
    _window_join,
    _window_answer,
    """time_bucket(interval 10 seconds, s."at") = time_bucket(interval 10 seconds, o."at")""",
    10 * SECOND_US,
    KEYS,
)
INTERVAL_JOIN = _join(
    "interval-join",
    "pairs of two streams within a second of each other, by string key",
    _interval_join,
    _interval_answer,
    """o."at" between s."at" - interval 1 second and s."at" + interval 1 second""",
    SECOND_US,
    KEYS,
)
