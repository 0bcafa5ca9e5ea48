"""Where jobs are: directories, ports. Apart from `seep.runtime.job`, so that the command line finds them at once."""

from __future__ import annotations

import os
from pathlib import Path

from seep.errors import Misuse
from seep.runtime.stores.files import escape


def jobs_home() -> Path:
    """Where flows keep their state unless told otherwise: one directory for each flow, by its name."""
    return Path(os.environ.get("SEEP_HOME") or ".seep")  # empty is not set: it would name the current directory


def job_path(flow: str) -> Path:
    return jobs_home() / escape(flow)


def api_port() -> int:
    """Where a job's API is to listen, for those who must know it beforehand; 0: on any free port."""
    given = os.environ.get("SEEP_API_PORT", "0")
    if not given.isdecimal() or int(given) > 65_535:
        raise Misuse(f"SEEP_API_PORT={given!r} is no port; give a number up to 65535")
    return int(given)
