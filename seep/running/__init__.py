"""A flow, run: here in virtual time, or as a job of real processes."""

from __future__ import annotations

from seep.running.job import Job, start
from seep.running.once import run
from seep.running.result import Result

__all__ = ["Job", "Result", "run", "start"]
