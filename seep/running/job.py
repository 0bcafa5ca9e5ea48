"""A job: a flow that runs as real processes, and the handle to it."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from seep.backends.local import LocalBackend
from seep.backends.needs import need_ray, need_redis, need_spark
from seep.backends.process import end_workers
from seep.control.requests import FixEpoch, ReleaseEpoch
from seep.errors import Misuse, Retry, SeepError, error_of
from seep.flow.build import Flow
from seep.flow.check import prepared, runnable
from seep.model.counts import whole as whole_number
from seep.protocol.journal import LIVE, Journal, Replace
from seep.running.audit import audit_of
from seep.running.earlier import could_go_on, forget, has_journal
from seep.running.result import Result, collected
from seep.running.savepoint import Savepoint, new_savepoint, source_positions, whole
from seep.running.state import check_operator, state_table
from seep.runtime import controllernumbers
from seep.runtime.api import ApiServer
from seep.runtime.control import HostControl
from seep.runtime.controller import FAILED, ControllerHost
from seep.runtime.deadletters import NAME as LETTERS
from seep.runtime.exporter import Exporter
from seep.runtime.home import job_path
from seep.runtime.job import JobDirectory
from seep.runtime.numbers import Snapshot
from seep.runtime.readers import PrometheusServer, Scraper, Unreadable
from seep.runtime.slots import Backend
from seep.runtime.watch import Watch
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError

PATIENCE_SECONDS = 60.0
HEADROOM_EPOCHS = 1_000_000
"""A flow restored from a savepoint goes on above every number the saved one may have used meanwhile."""


def start(
    flow: Flow,
    on: str = "local",
    workers: int = 2,
    master: str | None = None,
    restore: str | Path | None = None,
    resume: bool = False,
    prometheus: str | None = None,
    store: str | None = None,
    spare: int | None = None,
) -> Job:
    """Start a flow and give back the handle to it; `restore` names a savepoint to start from.

    `store` is the address of a Redis that keeps checkpoints, logs and journal (``redis://127.0.0.1:6379/0``); without
    one the job's directory does. `resume` goes on from the durable store of a job whose processes are gone.
    `prometheus` is the address of a server that scrapes the workers (they are found at ``/targets`` of the job's API);
    without one the controller does it. `spare` is how many warm workers are kept beyond those in use, for whatever
    grows or dies next; one, unless said otherwise.
    """
    workers = whole_number("workers", workers, 1)
    spare = None if spare is None else whole_number("spare", spare)
    graph = runnable(flow)
    path = job_path(flow.name)
    if (path / "api").exists() and _answers(path):
        raise Misuse(f"flow {flow.name!r} runs already in {path}; stop it first: seep stop {flow.name}")
    backend = _backend(on, master)
    if store is not None:
        need_redis(store)
    if resume:
        if not has_journal(path, store):
            raise Misuse(f"flow {flow.name!r} has nothing to resume in {path}; start it without --resume")
        try:
            directory = JobDirectory.resume(path, graph, flow.settings)
        except DamagedError as error:
            raise Misuse(
                f"the job in {path} cannot be resumed: its plan: {error}; is its key the one it had?"
            ) from error
    else:
        saved = _savepoint(restore, path) if restore is not None else None
        if saved is not None:
            saved.check(graph)
        ready = prepared(graph)
        if (path / "key").exists():
            if could_go_on(path):
                print(
                    f"seep: the state of an earlier run is in {path}, and is replaced now; --resume goes on from it",
                    file=sys.stderr,
                )
            # Without a controller its workers may still write, until they notice.
            end_workers(JobDirectory(path))
            forget(JobDirectory(path))
        for part in ("store", "elsewhere", "sockets", "workers", "api", "token", LETTERS):
            _remove(path / part)
        directory = JobDirectory.create(path, graph, flow.settings, ready)
        if store is not None:
            directory.keep_elsewhere(store)
        if saved is not None:
            saved.prepare(ready, directory.store())
    return Job(flow, directory, backend(directory), workers, prometheus, spare)


def _savepoint(restore: str | Path, path: Path) -> Savepoint:
    return Savepoint(Path(restore) if "/" in str(restore) else path / "savepoints" / str(restore))


def _backend(on: str, master: str | None) -> Callable[[JobDirectory], Backend]:
    """Refuses what cannot run here, while nothing is changed yet."""
    if on == "local":
        if master is not None:
            raise Misuse("master= belongs to on='spark' and on='ray'")
        return LocalBackend
    if on == "spark":
        from seep.backends.spark import SparkBackend

        need_spark(master)
        return lambda directory: SparkBackend(directory, master)
    if on == "ray":
        from seep.backends.ray import RayBackend

        need_ray(master)
        return lambda directory: RayBackend(directory, master)
    raise Misuse(f"on={on!r}; there are 'inline', 'local', 'spark' and 'ray'")


def _server(url: str, flow: str) -> PrometheusServer:
    """It need not be there yet. But without a policy nobody would ask it, and it would never be told that it is not."""
    server = PrometheusServer(url, flow)
    try:
        server.read(1.0)
    except Unreadable as problem:
        print(f"seep: {problem}; nothing is scaled by its numbers until it answers", file=sys.stderr)
    return server


class Job:
    """A running flow."""

    def __init__(
        self,
        flow: Flow,
        directory: JobDirectory,
        backend: Backend,
        workers: int,
        prometheus: str | None = None,
        spare: int | None = None,
    ) -> None:
        self.name = flow.name
        self.directory = directory
        self.host = ControllerHost(directory, backend, workers, spare)
        reader = _server(prometheus, flow.name) if prometheus else Scraper(directory.targets)
        self.watch = Watch(self.host, reader)
        self.exporter = Exporter(self._numbers, controllernumbers.FAMILIES, controllernumbers.HISTOGRAMS)
        self._control = HostControl(flow.name, self.host, self.watch, self.exporter.serve(directory.address))
        self.api = ApiServer(directory.path, self)
        self.host.start()
        self.watch.start()

    # --- looking -------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Flow, operators, partitions and workers, as `seep ps` shows them."""
        return self._control.status()

    def explain(self, operator: str | None = None) -> dict[str, Any]:
        """What the controller decided and why, who is slow, and who holds the watermark back."""
        return self._control.explain(operator)

    def targets(self) -> list[dict[str, Any]]:
        """Where the workers and the controller serve their metrics, for Prometheus' HTTP service discovery."""
        return self._control.targets()

    def _numbers(self) -> Snapshot:
        host, counts = self.host, self.watch.governor.counts
        operators, view = list(host.machine.graph.nodes), host.view
        return controllernumbers.snapshot(operators, view.journal, len(view.workers), host.changes, counts)

    @property
    def journal(self) -> Journal:
        return self.host.view.journal

    def audit(self) -> dict[str, Any]:
        """Do the books balance: was every row that was put on an edge, up to one epoch, taken from it once?"""
        with self._fixed() as fixed:
            store, graph = self.directory.store(), self.host.machine.graph
            return audit_of(graph, self.journal, store, fixed.at, self._saved(fixed), self._positions(fixed))

    def _saved(self, fixed: Replace) -> list[Checkpoint]:
        store, view = self.directory.store(), self.host.view
        return [whole(store, p, view.statuses[p].fixed_version) for p in fixed.old]

    def _positions(self, fixed: Replace) -> dict[str, Any]:
        names = [n.name for n in self.host.machine.graph.nodes.values() if n.kind == "source"]
        store = self.directory.store()
        return {name: source_positions(store, self.journal, name, fixed.at) for name in names}

    def state(self, operator: str) -> pa.Table:
        """What an operator remembers, by key, at one epoch of the running flow."""
        graph = self.host.machine.graph
        check_operator(graph, operator)
        with self._fixed() as fixed:
            store, view = self.directory.store(), self.host.view
            chosen = [p for p in fixed.old if p.operator == operator]
            checkpoints = [whole(store, p, view.statuses[p].fixed_version) for p in chosen]
        return state_table(graph, operator, checkpoints)

    # --- changing ------------------------------------------------------------------------------------------------

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        """Run an operator as so many partitions, while it runs; returns when the change is committed.

        With `dry_run` nothing is changed: the answer says what would be replaced by what.
        """
        answer = self._control.scale(operator, count, dry_run)
        if dry_run:
            return answer
        self._until(lambda: len(self.journal.live(operator)) == count and self._at_rest(operator), f"scale {operator}")
        return answer

    def rebalance(self, operator: str) -> dict[str, Any]:
        """Give an operator's partitions key ranges of equal load, while it runs; returns when that is committed.

        The answer says whether anything was changed, and why (not).
        """
        before = self.journal.next_number.get(operator)
        answer = self._control.rebalance(operator)

        def done() -> bool:
            over = self.journal.next_number.get(operator) != before or not self._control.planned(operator)[0]
            return over and self._at_rest(operator)

        self._until(done, f"rebalance {operator}")
        return answer

    def _at_rest(self, operator: str) -> bool:
        return all(r.operator != operator for r in self.journal.replaces)

    def unwaiting(self) -> Unwaiting:
        """The same job for who does not want to wait until a change is committed."""
        return Unwaiting(self, self._control)

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        """SIGKILL the worker that runs this partition (its other partitions die with it)."""
        return self._control.kill(operator, index)

    def savepoint(self, name: str) -> dict[str, Any]:
        """Keep the whole flow's state at one epoch under a name; the flow runs on."""
        path = new_savepoint(self.directory.path, name)
        began = time.monotonic()
        with self._fixed() as fixed:
            highest = max(s.epoch for s in self.host.view.statuses.values()) + HEADROOM_EPOCHS
            saved, positions = self._saved(fixed), self._positions(fixed)
            Savepoint.write(path, self.directory.key, self.name, fixed.at, highest, saved, positions)
        return {"savepoint": name, "path": str(path), "epoch": fixed.at, "seconds": round(time.monotonic() - began, 3)}

    def stop(self, drain: bool = False) -> dict[str, Any]:
        """End the flow; with `drain`, sources stop and everything in flight reaches the sinks first."""
        return self._control.stop(drain)

    def wait(self, timeout_seconds: float | None = None) -> Result:
        """Until the flow has ended; what it collected. Raises what made it fail."""
        if not self.host.wait(timeout_seconds):
            raise Retry(f"flow {self.name!r} is still running after {timeout_seconds} s")
        self._close_faces()
        if self.host.outcome == FAILED:
            raise error_of(self.host.report)
        return self.result()

    def result(self) -> Result:
        """What has been collected so far."""
        return collected(self.host.machine.graph, self.journal, self.directory.store().perform)

    def close(self) -> None:
        """End everything that still runs."""
        if not self.host.outcome:
            self.stop()
            self.host.wait(PATIENCE_SECONDS)
        self._close_faces()

    def _close_faces(self) -> None:
        self.watch.close()
        self.api.close()
        self.exporter.close()

    # --- one epoch -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _fixed(self) -> Any:
        """All operator partitions keep a checkpoint of one epoch while this lasts; the sources have passed it."""
        self.host.request(FixEpoch())
        found: list[Replace] = []

        def ready() -> bool:
            view = self.host.view
            pending = [r for r in view.journal.replaces if not r.operator]
            if not pending:
                return False
            statuses = [view.statuses.get(p) for p in pending[0].old]
            at = pending[0].at
            others = [
                view.statuses.get(e.partition)
                for e in view.journal.entries.values()
                if e.role == LIVE and e.partition not in pending[0].old
            ]
            if all(s and s.fixed_version and s.fixed_epoch == at for s in statuses) and all(
                s and (s.epoch >= at or s.ended) for s in others
            ):
                found[:] = pending[:1]
            return bool(found)

        try:
            self._until(ready, "a checkpoint of one epoch")
            yield found[0]
        finally:
            for pending in self.journal.replaces:
                if not pending.operator:
                    self.host.request(ReleaseEpoch(pending.number))

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if self.host.outcome:
                raise Retry(f"{what}: the flow has {self.host.outcome}")
            if time.monotonic() > deadline:
                latest = next((said for _, said in reversed(self.host.view.decisions)), "nothing")
                raise Retry(f"{what}: not done within {PATIENCE_SECONDS:.0f} s; the controller's last step: {latest}")
            time.sleep(0.005)


class Unwaiting:
    def __init__(self, job: Job, control: HostControl) -> None:
        self.status, self.kill, self.scale = control.status, control.kill, control.scale
        self.audit, self.savepoint = job.audit, job.savepoint


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    import httpx

    try:
        token = (path / "token").read_text()
        address = (path / "api").read_text()
        httpx.get(f"{address}/status", headers={"Authorization": f"Bearer {token}"}, timeout=2)
    except (OSError, httpx.HTTPError):
        return False
    return True


__all__ = ["Job", "SeepError", "start"]
