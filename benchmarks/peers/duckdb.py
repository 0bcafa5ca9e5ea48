"""DuckDB, in memory, all threads, over Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.peers import Spec
from benchmarks.peers.whole import measure
from benchmarks.workload import Workload


def query(workload: Workload, tables: Mapping[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(workload.sql).to_arrow_table()


def main(spec: Spec) -> dict[str, Any]:
    return measure(spec, query, duckdb.__version__)
