"""Workers on Ray: a slot is an actor that stays until its worker ends. Ray's restarts are off: they are never ours.

A Ray of our own listens on the loopback interface only, reports to nobody and keeps its files in the job's directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from seep.backends.held import HeldSlots
from seep.backends.process import ENVIRONMENT
from seep.backends.shipping import ship
from seep.backends.slot import Slot
from seep.backends.zygote import load_code
from seep.errors import Retry
from seep.runtime.hosts import address_towards, is_loopback
from seep.runtime.job import JobDirectory

OWN = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: not more than this host, so loopback is enough
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what it will do anyway, and warns about until then
}
OBJECTS_BYTES = 80_000_000
"""Close to the least that Ray accepts. No row passes through it."""
END_SECONDS = 5.0
"""So long Ray may take to end the actors before it is shut down under them."""
PATH_MAXIMUM = 40
"""Below a longer path Ray's sockets would have names longer than a socket may have."""


class RayBackend(HeldSlots):
    """``address``: of a running Ray (``auto``: the one of this machine); None: one of our own, ended with the job."""

    scheduler = "Ray"

    def __init__(self, job: JobDirectory, address: str | None = None) -> None:
        super().__init__(job, network_address(address))
        self._address = address
        self._actors: dict[str, Any] = {}
        # Whoever asks Ray for anything after its shutdown is ended by it, with the whole process.
        self._asking = threading.Lock()
        self._shut = False
        # Ray's processes end with the thread that started them: no slot's thread lives long enough.
        self._keeper: threading.Thread | None = None
        self._over = threading.Event()

    def _start(self) -> Any:
        begun: Future[Any] = Future()
        # Whoever ends this process does not wait for a Ray that does not answer.
        self._keeper = threading.Thread(target=self._keep, args=(begun,), name="seep-ray", daemon=True)
        self._keeper.start()
        return begun.result()

    def _keep(self, begun: Future[Any]) -> None:
        try:
            session = self._init()
        except BaseException as error:
            begun.set_exception(error)
            return
        begun.set_result(session)
        self._over.wait()
        session.shutdown()

    def _init(self) -> Any:
        # A slot that asks when Ray has just been let go of would start another one.
        os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
        own = self._own() if self._address is None else {}
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        path = self._path()
        try:
            ray.init(
                address=self._address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                runtime_env={"env_vars": {**ENVIRONMENT, "PYTHONPATH": path}},
                **own,
            )
        except Exception:
            ray.shutdown()
            raise
        return ray

    def _path(self) -> str:
        if self._job.network_address:
            load_code(self._job)
            return str(ship(self._job.path))
        return os.pathsep.join(entry or os.getcwd() for entry in sys.path)

    def _own(self) -> dict[str, Any]:
        os.environ.update(OWN)
        return {
            "include_dashboard": False,
            "num_cpus": 1,  # it starts as many idle processes as it has of these; slots take none
            "num_gpus": 0,
            "object_store_memory": OBJECTS_BYTES,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(make_files(self._job.path)),
        }

    def _hold(self, session: Any, worker: str) -> str:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with self._asking:
            if self._shut:
                raise Retry("Ray was let go of")
            where: Any = "SPREAD"
            if not self._job.network_address:
                where = NodeAffinitySchedulingStrategy(session.get_runtime_context().get_node_id(), soft=False)
            options = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 0, "scheduling_strategy": where}
            slot = self._actors[worker] = session.remote(**options)(Slot).remote()
            running = slot.run.remote(self._errand, worker)
        try:
            told: str = session.get(running)
        except SystemExit as gone:
            # That is how Ray wakes those that wait for something when it is shut down.
            raise Retry("Ray was let go of") from gone
        finally:
            self._kill(session, worker)
            self._actors.pop(worker, None)
        return told

    def _kill(self, session: Any, worker: str) -> None:
        slot = self._actors.get(worker)
        with self._asking, contextlib.suppress(Exception):  # a Ray that died may say so
            if slot is not None and not self._shut:
                session.kill(slot)

    def _lives(self, session: Any) -> bool:
        if self._address is not None or not session.is_initialized():
            return bool(session.is_initialized())
        # What it says of its nodes comes seconds after their end; this looks at the processes.
        node = session._private.worker._global_node
        return node is not None and bool(node.remaining_processes_alive())

    def _break_off(self) -> None:
        """It gives up by itself."""

    def _stop(self, session: Any) -> None:
        for worker in list(self._actors):
            self._kill(session, worker)
        deadline = time.monotonic() + END_SECONDS
        while self._actors and self._lives(session) and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._asking:
            self._shut = True
        self._over.set()
        assert self._keeper is not None
        self._keeper.join()
        if self._address is None:
            remove_files(self._job.path)


def network_address(ray_address: str | None) -> str:
    """Where workers on other hosts find this one; empty: there are none.

    >>> network_address(None), network_address("auto"), network_address("127.0.0.1:6379")
    ('', '', '')
    """
    if ray_address is None or ":" not in ray_address:
        return ""
    address = address_towards(ray_address.removeprefix("ray://").rpartition(":")[0].strip("[]"))
    return "" if is_loopback(address) else address


def make_files(job_path: Path) -> Path:
    """A directory for the sockets and logs of a Ray of our own: in the job's, if the name is short enough."""
    remove_files(job_path)
    inside = job_path / "ray"
    if len(os.fsencode(inside)) <= PATH_MAXIMUM:
        inside.mkdir()
        return inside
    outside = Path(tempfile.mkdtemp(prefix="seep-ray-"))
    inside.symlink_to(outside)
    # One below: Ray opens to everyone what it is given.
    return outside / "ray"


def remove_files(job_path: Path) -> None:
    """Also those of an earlier driver that was killed."""
    inside = job_path / "ray"
    shutil.rmtree(inside.resolve(), ignore_errors=True)
    if inside.is_symlink():
        inside.unlink()
