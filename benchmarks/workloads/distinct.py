"""`distinct`: how many visitors each store has had so far, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import seep
from benchmarks.workload import Workload
from benchmarks.workloads.windows import names_of

KEYS = 1_000
VISITORS = 100_000


@dataclass(frozen=True)
class Visits:
    keys: int

    def __call__(self, split: int, rows: int, seed: int) -> pa.RecordBatch:
        rng = np.random.default_rng([seed, split])
        stores = names_of(self.keys).take(pa.array(rng.integers(0, self.keys, rows)))
        return pa.record_batch({"store": stores, "visitor": rng.integers(0, VISITORS, rows)})


def _distinct(streams: Mapping[str, seep.Stream]) -> Any:
    """With a count, so that every row changes a result: else nothing would be sent once all visitors are known."""
    return streams["visits"].key_by("store").aggregate(n=seep.count(), visitors=seep.distinct("visitor"))


DISTINCT = Workload(
    "distinct",
    "a running count of distinct visitors by string key",
    rows=10_000_000,
    lap_rows=1_000_000,
    blocks={"visits": Visits(KEYS)},
    build=_distinct,
    answer=lambda frames: (
        frames["visits"]
        .group_by("store")
        .agg(n=pl.len().cast(pl.Int64), visitors=pl.col("visitor").n_unique().cast(pl.Int64))
    ),
    sql="select store, count(*) as n, count(distinct visitor) as visitors from visits group by store",
    columns=("store", "n", "visitors"),
    keys=("store",),
    repeated=lambda rows: rows.group_by("store").agg(
        n=pl.col("times").sum(), visitors=pl.col("visitor").n_unique().cast(pl.Int64)
    ),
    settings={"keys": KEYS, "visitors": VISITORS},
)
