"""Bytewax (Python on a Rust core), in an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import Spec, Unable
from benchmarks.peers.buffers import environment, run

PACKAGES = ("bytewax==0.21.1", "pyarrow", "numpy")
WORKLOADS = ("keyed-count", "keyed-window", "keyed-window-large", "word-count")
HOW = "one process, 2 worker threads, recovery snapshots every 5 s"


def main(spec: Spec) -> dict[str, Any]:
    if spec.workload not in WORKLOADS:
        raise Unable(f"no program for {spec.workload}")
    program = Path(__file__).parent / "bytewax" / "flow.py"
    return run(spec, [environment("bytewax", PACKAGES), str(program)], PACKAGES[0].partition("==")[2], HOW)
