"""Workers on Ray: a slot is an actor that stays until its worker ends. Ray's restarts are off: they are never ours."""

from __future__ import annotations

import os
import sys
from typing import Any

from seep.backends.held import HeldSlots
from seep.backends.process import ENVIRONMENT
from seep.runtime.job import JobDirectory

EMBEDDED_CPUS = 64
"""What a Ray of our own says it has. Slots say how many processes there are, not Ray's idea of cores."""


class RayBackend(HeldSlots):
    """``address``: of a running Ray (``auto``: the one of this machine); None: one of our own, ended with the job."""

    scheduler = "Ray"

    def __init__(self, job: JobDirectory, address: str | None = None) -> None:
        super().__init__(job)
        self._address = address

    def _start(self) -> Any:
        import ray

        own: dict[str, Any] = {"include_dashboard": False, "num_cpus": EMBEDDED_CPUS} if self._address is None else {}
        ray.init(
            address=self._address or "local",
            log_to_driver=False,
            logging_level="error",
            configure_logging=False,
            **own,
        )
        return ray

    def _hold(self, session: Any, worker: str) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**ENVIRONMENT, "PYTHONPATH": path}
        slot = session.remote(
            max_restarts=0,
            max_task_retries=0,
            num_cpus=0 if self._address else 1,
            runtime_env={"env_vars": environment},
        )(Slot).remote()
        session.get(slot.run.remote(str(self._job.path), worker))

    def _stop(self, session: Any) -> None:
        session.shutdown()


class Slot:
    """The actor."""

    def run(self, path: str, worker: str) -> None:
        from seep.runtime.worker import run_worker

        run_worker(path, worker)
