"""Facts about the machine a figure was measured on, and the processor time and memory of processes."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("numba", "numpy", "polars", "pyarrow")


@cache
def facts() -> dict[str, Any]:
    """Cores, memory, versions."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gb": round(pages / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far, all its threads; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> list[int]:
    """The processes it has started and those that they have, as they stand now."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name, in brackets, may hold anything: count from behind it.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def resident_bytes(process: int) -> int:
    """Memory of a process; what it shares with others counts too. 0 when it is gone."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
