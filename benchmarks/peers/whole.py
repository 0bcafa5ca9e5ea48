"""Engines that take the whole data at once: rows are in memory as Arrow, then the clock runs until the result is.

Such an engine has no open windows, checkpoints or latency to care for: its figure is what the hardware gives when
nothing has to be ready before the end.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from benchmarks.digest import Digest
from benchmarks.oracle import digest_table
from benchmarks.peers import Spec
from benchmarks.workload import Workload

REPEATS = 3
"""The best of them counts: the first also loads code and memory."""
Query = Callable[[Workload, Mapping[str, pa.Table]], pa.Table]


def measure(spec: Spec, query: Query, version: str) -> dict[str, Any]:
    workload = spec.load()
    tables = workload.frames(spec.rows, spec.seed)
    rows = sum(table.num_rows for table in tables.values())
    best, cpu, result = float("inf"), 0.0, pa.table({})
    for _ in range(REPEATS):
        used, began = _used(), time.perf_counter()
        result = query(workload, tables)
        seconds = time.perf_counter() - began
        if seconds < best:
            best, cpu = seconds, _used() - used
    found = digest_table(result, workload.columns)
    return {
        "rows_per_second": round(rows / best),
        "cpu_seconds_per_10m_rows": round(cpu / rows * 10_000_000, 3),
        "how": "the whole data at once",
        "version": version,
        "given": {name: [table.num_rows // spec.splits] * spec.splits for name, table in tables.items()},
        "rows_out": found.rows,
        "digest": str(found.total),
    }


def digest_by(query: Query, spec: Spec) -> Digest:
    workload = spec.load()
    return digest_table(query(workload, workload.frames(spec.rows, spec.seed)), workload.columns)


def _used() -> float:
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime
