"""Timely dataflow (Rust), from crates: two worker threads in one process, built once and kept.

Nothing is saved while it runs and no process boundary is crossed: what rows, keys and windows cost on this machine in a
compiled program without fault tolerance. Keys are Strings; `timely_fixed` is the same program for keys that are known
to have 24 bytes at most.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

from benchmarks.peers import Spec, Unable
from benchmarks.peers.buffers import cache, output, run

HERE = Path(__file__).parent / "timely"
WORKLOADS = ("keyed-count", "keyed-window", "keyed-window-large")
HOW = "one process, 2 worker threads, no checkpoints, keys as {}"


def main(spec: Spec) -> dict[str, Any]:
    return measured(spec, "text", "Strings")


def measured(spec: Spec, keys: str, words: str) -> dict[str, Any]:
    if spec.workload not in WORKLOADS:
        raise Unable(f"no program for {spec.workload}")
    version = re.search(r'timely = "=(.+)"', (HERE / "Cargo.toml").read_text())
    return run(spec, [str(built()), f"keys={keys}"], version[1] if version else "unknown", HOW.format(words))


def built() -> Path:
    """The program, made when the sources have changed. Built elsewhere: it leaves a lock file and much else."""
    sources = [HERE / "Cargo.toml", HERE / "src" / "main.rs"]
    home = cache() / f"timely-{hashlib.sha256(b''.join(map(Path.read_bytes, sources))).hexdigest()[:12]}"
    program = home / "target" / "release" / "bench"
    if not program.exists():
        shutil.copytree(HERE, home, dirs_exist_ok=True)
        output(["cargo", "build", "--release", "--quiet"], home)
    return program
