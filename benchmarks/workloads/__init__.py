"""The workloads by name; each is a value, so that every engine is asked the same."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads.counts import KEYED_COUNT, WORD_COUNT
from benchmarks.workloads.distinct import DISTINCT
from benchmarks.workloads.joins import INTERVAL_JOIN, WINDOW_JOIN
from benchmarks.workloads.moving import SESSION, SLIDING
from benchmarks.workloads.windows import KEYED_WINDOW, KEYED_WINDOW_LARGE

ALL = (
    KEYED_COUNT,
    KEYED_WINDOW,
    KEYED_WINDOW_LARGE,
    WINDOW_JOIN,
    WORD_COUNT,
    SLIDING,
    SESSION,
    INTERVAL_JOIN,
    DISTINCT,
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in ALL}
