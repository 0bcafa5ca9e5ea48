"""Pathway (Python on a Rust core), in an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import Spec, Unable
from benchmarks.peers.buffers import environment, run

PACKAGES = ("pathway==0.33.0", "pyarrow", "numpy")
WORKLOADS = ("keyed-count", "keyed-window", "word-count")
HOW = (
    "one process, 2 worker threads, rows through its Python connector; its input is saved every 5 s, to be computed "
    "again after a failure (to save operators instead needs a licence key)"
)


def main(spec: Spec) -> dict[str, Any]:
    if spec.workload not in WORKLOADS:
        raise Unable(f"no program for {spec.workload}")
    program = Path(__file__).parent / "pathway" / "flow.py"
    return run(spec, [environment("pathway", PACKAGES), str(program)], PACKAGES[0].partition("==")[2], HOW)
