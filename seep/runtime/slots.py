"""What the controller's host needs of a backend: places to run workers. No data passes through one."""

from __future__ import annotations

from typing import Protocol


class Backend(Protocol):
    def want(self, count: int) -> None:
        """Have at least this many workers, by starting new ones. Never blocks; never stops one."""

    def release(self, worker: str) -> None:
        """Let this worker end, in peace. One on another host, which no signal reaches, the controller has told to."""

    def kill(self, worker: str) -> None:
        """End it with SIGKILL: now, or, on another host, as soon as its scheduler does."""

    def events(self) -> list[str]:
        """Workers that have ended since the last call."""

    def workers(self) -> list[str]:
        """Those started and not ended."""

    def problem(self) -> str:
        """Why no worker can be had, in one line; empty: they can."""

    def close(self) -> None:
        """End every worker, by force where need be."""

    def detach(self) -> None:
        """Leave the workers as they are and let go of everything else."""
