"""Which Spark executor runs a worker: the nearest JVM among the worker's ancestors."""

from __future__ import annotations

from pathlib import Path

EXECUTOR = b"CoarseGrainedExecutorBackend"


def executor_of(process: int) -> int:
    """The process id of the executor; 0 when there is none: it is gone, or does not run on Spark."""
    while process > 1:
        try:
            if EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes():
                return process
            # The name, in brackets, may hold anything: count from behind it.
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0
    return 0
