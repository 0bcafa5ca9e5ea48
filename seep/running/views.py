"""What an operator remembers at one epoch, as a directory for readers in other processes: Spark's tasks.

A view is a savepoint of one operator. Nobody says when the last task has read it (Spark tells a data source nothing of
the kind), so it goes when it has not been read for a while; whoever comes too late is told to ask again.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from seep.partition.contract import Graph
from seep.running.savepoint import Savepoint, at_hand
from seep.runtime.job import JobDirectory
from seep.state.checkpoint import Checkpoint

DIRECTORY = "views"
KEPT_SECONDS = 3600.0


def lay_down(job: JobDirectory, flow: str, epoch: int, checkpoints: Sequence[Checkpoint], graph: Graph) -> Path:
    """Those of one operator; views that nobody reads any more go."""
    home = job.path / DIRECTORY
    for old in home.glob("*"):
        if time.time() - old.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(old)
    path = home / f"{epoch}-{secrets.token_hex(4)}"
    Savepoint.write(path, job.key, flow, epoch, epoch, at_hand(checkpoints), {}, graph)
    return path
