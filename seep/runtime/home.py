"""Where the directories of jobs are. Apart from `seep.runtime.job`, so that the command line finds them at once."""

from __future__ import annotations

import os
from pathlib import Path

from seep.runtime.stores.files import escape


def jobs_home() -> Path:
    """Where flows keep their state unless told otherwise: one directory for each flow, by its name."""
    return Path(os.environ.get("SEEP_HOME", ".seep"))


def job_path(flow: str) -> Path:
    return jobs_home() / escape(flow)
