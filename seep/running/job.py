"""A job: a flow that runs as real processes, and the handle to it."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow as pa

from seep.backends.local import LocalBackend
from seep.backends.needs import check_addresses, counted, need_objects, need_ray, need_redis, need_spark
from seep.errors import Misuse, Retry, SeepError, error_of
from seep.flow.build import Flow
from seep.flow.check import kept, prepared, runnable
from seep.model.counts import seconds as seconds_number
from seep.model.counts import whole as whole_number
from seep.protocol.journal import Journal, Replace
from seep.running import views
from seep.running.audit import audit_of
from seep.running.before import FETCHED, Claim, answers, claimed, clear, has_journal, make_home, remove, restored
from seep.running.fixing import PATIENCE_SECONDS, Fixing, wait_until
from seep.running.places import check_empty, sent
from seep.running.queries import Answer, Query, answer_of, shown
from seep.running.result import Result, collected
from seep.running.savepoint import Savepoint, new_savepoint, savepoint_at, source_positions
from seep.running.scaled import scaled
from seep.running.state import check_operator, state_table
from seep.running.upgrading import planned
from seep.runtime import controllernumbers
from seep.runtime.api import ApiServer, check_port
from seep.runtime.control import HostControl
from seep.runtime.controller import FAILED, ControllerHost
from seep.runtime.exporter import Exporter
from seep.runtime.home import job_path
from seep.runtime.job import RECEIVED, JobDirectory
from seep.runtime.numbers import Snapshot
from seep.runtime.readers import PrometheusServer, Scraper, Unreadable
from seep.runtime.slots import Backend
from seep.runtime.watch import Watch
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError

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
    rename: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    checkpoints: str | None = None,
    spare: int | None = None,
    recover_in: int = 1,
) -> Job:
    """Start a flow and give back the handle to it; `restore` names a savepoint to start from.

    >>> import seep
    >>> flow = seep.Flow("digits")
    >>> numbers = flow.source("numbers", seep.GeneratorSource(lambda i: {"digit": i % 10}, rows=1000))
    >>> numbers.key_by("digit").aggregate(n=seep.count()).named("count").collect("counts")
    >>> job = seep.start(flow, workers=1)
    >>> job.wait()["counts"].num_rows
    10

    Of a savepoint of another version of the flow, `rename` maps the names of operators and sources that have changed
    since (``{"old": "new"}``); `drop` names what may be lost: operators, sources, columns, states (``"visits.seen"``).
    `store` is the address of a Redis that keeps checkpoints, logs and journal (``redis://127.0.0.1:6379/0``); without
    one the job's directory does. `checkpoints` is a folder of an object store for the checkpoints alone
    (``s3://BUCKET/FOLDER``). `resume` goes on from the durable store of a job whose processes are gone.
    `prometheus` is the address of a server that scrapes the workers (they are found at ``/targets`` of the job's API);
    without one the controller does it. `spare` is how many warm workers are kept beyond those in use, for whatever
    grows or dies next; one, unless said otherwise. `recover_in`: a partition of an operator that dies comes back as so
    many, which share the replay (SEEP's parallel recovery); give as many spare workers.
    """
    if on == "inline":
        raise Misuse("on='inline' runs to the end of its input, and there is no job to hold; call seep.run(flow)")
    workers, spare = counted(on, workers, spare)
    recover_in = whole_number("recover_in", recover_in, 1)
    check_addresses(prometheus, master=master, store=store, checkpoints=checkpoints)
    graph = runnable(flow)
    path = job_path(flow.name)
    if answers(path):
        raise Misuse(f"flow {flow.name!r} runs already in {path}; stop it first: seep stop {quote(flow.name)}")
    check_port()
    backend = _backend(on, master)
    if store is not None:
        need_redis(store)
    if checkpoints is not None:
        need_objects(checkpoints)
    if resume and restore is not None:
        raise Misuse("resume goes on from the job's own state, restore from a savepoint; give one of them")
    if resume and not has_journal(path, store, checkpoints):
        raise Misuse(f"flow {flow.name!r} has nothing to resume in {path}; start it without --resume")
    ready = graph if resume else prepared(graph)
    saved = None if resume else restored(flow.name, ready, restore, rename, drop)
    make_home(path)
    with ExitStack() as failed:
        claim = claimed(path, flow.name, resume)
        failed.callback(claim.release)
        if resume:
            try:
                directory = JobDirectory.resume(path, graph, flow.settings)
            except DamagedError as error:
                raise Misuse(
                    f"the job in {path} cannot be resumed: its plan: {error}; is its key the one it had?"
                ) from error
        else:
            clear(path, received=saved is None)  # what was received since a savepoint is read again
            ready = kept(ready, (path / RECEIVED).absolute())
            directory = JobDirectory.create(path, graph, flow.settings, ready)
            if store is not None:
                directory.keep_elsewhere(store)
            if checkpoints is not None:
                directory.keep_objects(checkpoints)
            if saved is not None:
                saved[0].prepare(ready, directory.store(), saved[1])
                remove(path / FETCHED)
        job = Job(flow, directory, backend(directory), workers, prometheus, spare, recover_in, claim)
        failed.pop_all()
    return job


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
        recover_in: int = 1,
        claim: Claim | None = None,
    ) -> None:
        self.name = flow.name
        self._claim = claim
        self.directory = directory
        self.host = ControllerHost(directory, backend, workers, spare, recover_in)
        reader = _server(prometheus, flow.name) if prometheus else Scraper(directory.targets)
        self.watch = Watch(self.host, reader)
        self._fixing = Fixing(self.host)
        self._upgrading = threading.Lock()
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
        with self._fixing.fixed() as fixed:
            store, graph = self.directory.store(), self.host.graph
            return audit_of(graph, self.journal, store, fixed.at, self._saved(fixed), self._positions(fixed))

    def _saved(self, fixed: Replace) -> Iterator[Checkpoint]:
        """One after the other: all of them may be large."""
        return (read() for read in self._saves(fixed))

    def _saves(self, fixed: Replace) -> list[Callable[[], Checkpoint]]:
        """What reads each of them."""
        return self._fixing.saves(self.directory.store(), fixed)

    def _positions(self, fixed: Replace) -> dict[str, Any]:
        names = [n.name for n in self.host.graph.nodes.values() if n.kind == "source"]
        store = self.directory.store()
        return {name: source_positions(store, self.journal, name, fixed.at) for name in names}

    def state(self, operator: str) -> pa.Table:
        """What an operator remembers, by key, at one epoch of the running flow."""
        graph = self.host.graph
        check_operator(graph, operator)
        return state_table(graph, operator, self._fixing.kept(self.directory.store(), [operator])[1][operator])

    def query(self, sql: str, at: str | Path | None = None) -> pa.Table:
        """SQL over what operators remember (``-`` in names is ``_``) at one epoch of the running flow; `at`: at a
        savepoint."""
        return self._answer(sql, at).table

    def query_shown(self, sql: str, at: str | None = None) -> dict[str, Any]:
        """The same as `seep state` shows it."""
        return shown(self.name, self._answer(sql, at))

    def _answer(self, sql: str, at: str | Path | None) -> Answer:
        graph = self.host.graph
        if at is not None:
            return answer_of(graph, savepoint_at(self.directory.path, at), sql)
        query = Query(graph, sql)
        epoch, kept = self._fixing.kept(self.directory.store(), list(query.tables.values()))
        return query.on(epoch, kept.__getitem__)

    def view(self, operator: str) -> dict[str, Any]:
        """What an operator remembers, laid down in a directory for readers in other processes; it goes by itself."""
        graph = self.host.graph
        check_operator(graph, operator)
        epoch, kept = self._fixing.kept(self.directory.store(), [operator])
        path = views.lay_down(self.directory, self.name, epoch, kept[operator], graph)
        return {"flow": self.name, "operator": operator, "epoch": epoch, "path": str(path)}

    # --- changing ------------------------------------------------------------------------------------------------

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        """Run an operator as so many partitions, while it runs; returns when the change is committed.

        With `dry_run` nothing is changed: the answer says what would be replaced by what.
        """
        done = scaled(self.host, operator, count)
        answer = self._control.scale(operator, count, dry_run)
        if not dry_run:
            self._until(done, f"scale {operator}")
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

    def upgrade(self, flow: Flow, operators: Collection[str] = (), drop: Collection[str] = ()) -> dict[str, Any]:
        """Have operators run the code that they have in another version of the flow, from one epoch on, while it runs;
        returns when that is committed. All that have changed, or those that are named, one after the other.

        `drop` names what may be lost of what they remember: ``"visits.seen"``, a column or state.
        """
        if flow.name != self.name:
            raise Misuse(f"the app's flow is {flow.name!r}, and {self.name!r} runs; give the flow its name")
        found = planned(self.directory, flow, operators, drop)
        return {"flow": self.name, "upgraded": [self.upgrade_to(operator, code) for operator, code in found]}

    def upgrade_to(self, operator: str, code: str) -> dict[str, Any]:
        """The same for one operator, by the name of code that is in the job's directory."""
        with self._upgrading:
            began, after = time.monotonic(), self.journal.next_replace
            before = len(self.journal.codes.get(operator, ()))
            self._control.upgrade(operator, code)

            def done() -> bool:
                for number, why in self.host.view.given_up.items():
                    if number >= after:
                        refused = why.removeprefix("given up: ")
                        raise (Misuse if refused != why else Retry)(f"{operator} was not upgraded: {refused}")
                return len(self.journal.codes.get(operator, ())) > before

            self._until(done, f"upgrade {operator}")
        seconds = round(time.monotonic() - began, 3)
        return {"operator": operator, "epoch": self.journal.codes[operator][-1].first, "seconds": seconds}

    def _at_rest(self, operator: str) -> bool:
        return all(r.operator != operator for r in self.journal.replaces)

    def unwaiting(self) -> Unwaiting:
        """The same job for who does not want to wait until a change is committed."""
        return Unwaiting(self, self._control)

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        """SIGKILL the worker that runs this partition (its other partitions die with it)."""
        return self._control.kill(operator, index)

    def savepoint(self, name: str) -> dict[str, Any]:
        """Keep the whole flow's state at one epoch; the flow runs on. Under a name, or at an address of an object store
        (``s3://BUCKET/FOLDER``) where nothing is yet."""
        is_address = "://" in str(name)
        if is_address:
            check_empty(name)
        path = new_savepoint(self.directory.path, secrets.token_hex(8) if is_address else name)
        began = time.monotonic()
        with self._fixing.fixed() as fixed:
            highest = max(s.epoch for s in self.host.view.statuses.values()) + HEADROOM_EPOCHS
            saved, positions, graph = self._saves(fixed), self._positions(fixed), self.host.graph
            self._fixing.wait_shown(fixed, self.host.machine.settings.epoch_ms)
            Savepoint.write(path, self.directory.key, self.name, fixed.at, highest, saved, positions, graph)
        if is_address:
            sent(path, name)
            remove(path)
        return {
            "savepoint": name,
            "path": name if is_address else str(path),
            "epoch": fixed.at,
            "seconds": round(time.monotonic() - began, 3),
        }

    def stop(self, drain: bool = False) -> dict[str, Any]:
        """End the flow; with `drain`, sources stop and everything in flight reaches the sinks first."""
        return self._control.stop(drain)

    def wait(self, timeout_seconds: float | None = None) -> Result:
        """Until the flow has ended; what it collected. Raises what made it fail."""
        if not self.host.wait(None if timeout_seconds is None else seconds_number("timeout_seconds", timeout_seconds)):
            raise Retry(f"flow {self.name!r} is still running after {timeout_seconds} s")
        self._close_faces()
        if self.host.outcome == FAILED:
            raise error_of(self.host.report)
        return self.result()

    def result(self) -> Result:
        """What has been collected so far."""
        return collected(self.host.graph, self.journal, self.directory.store().perform)

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
        if self._claim is not None:
            self._claim.release()

    def _until(self, done: Callable[[], bool], what: str) -> None:
        wait_until(self.host, done, what)


class Unwaiting:
    def __init__(self, job: Job, control: HostControl) -> None:
        self.status, self.kill, self.scale = control.status, control.kill, control.scale
        self.audit, self.savepoint = job.audit, job.savepoint


__all__ = ["Job", "SeepError", "start"]
