"""Polars, its streaming engine, all threads. The oracle of the others is Polars, so this one's is DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.peers import Spec
from benchmarks.peers.duckdb import query as by_duckdb
from benchmarks.peers.whole import digest_by, measure
from benchmarks.workload import Workload


def query(workload: Workload, tables: Mapping[str, pa.Table]) -> pa.Table:
    frames = {}
    for name, table in tables.items():
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frames[name] = frame.lazy()
    return workload.answer(frames).collect(engine="streaming").to_arrow()


def main(spec: Spec) -> dict[str, Any]:
    return {**measure(spec, query, pl.__version__), "right": list(digest_by(by_duckdb, spec))}
