"""The workloads by name; each is a value, so that every engine is asked the same."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads.counts import KEYED_COUNT, WORD_COUNT
from benchmarks.workloads.windows import KEYED_WINDOW, KEYED_WINDOW_LARGE

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (KEYED_COUNT, KEYED_WINDOW, KEYED_WINDOW_LARGE, WORD_COUNT)
}
