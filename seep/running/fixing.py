"""One epoch of the whole flow, for whoever reads it: every operator partition keeps its checkpoint of that epoch.

The controller names the epoch (`FixEpoch`), the partitions' Statuses say when each has it, and `ReleaseEpoch` lets it
go. One reader at a time: an epoch that somebody else has fixed may be released at any moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from seep.control.requests import FixEpoch, ReleaseEpoch
from seep.errors import DataLoss, Retry
from seep.model.ids import PartitionId
from seep.protocol.journal import LIVE, Replace
from seep.running.savepoint import whole
from seep.runtime.controller import ControllerHost
from seep.state.checkpoint import Checkpoint

PATIENCE_SECONDS = 60.0
HELD_EPOCHS = 40
"""A sink may show so many together, at most."""
ATTEMPTS = 3


class _GoneError(Exception):
    """Somebody died, and another epoch is or will be fixed: of this one not all is kept any more."""


class Fixing:
    def __init__(self, host: ControllerHost) -> None:
        self._host = host
        self._alone = threading.Lock()

    @contextmanager
    def fixed(self) -> Iterator[Replace]:
        """All operator partitions keep a checkpoint of one epoch while this lasts; the sources have passed it."""
        if not self._alone.acquire(timeout=PATIENCE_SECONDS):
            raise Retry("another savepoint, audit or query is being made; try again")
        try:
            # The one before may be on its way out still; one that came too late for whoever asked is in the way.
            over = {pending.number for pending in self._pending()}
            self._release()
            self._host.request(FixEpoch())
            found: list[Replace] = []

            def ready() -> bool:
                found[:] = [r for r in self._pending() if r.number not in over and self._is_kept(r)][:1]
                return bool(found)

            try:
                wait_until(self._host, ready, "a checkpoint of one epoch")
                yield found[0]
            finally:
                self._release()
        finally:
            self._alone.release()

    def wait_shown(self, fixed: Replace, epoch_ms: float) -> None:
        """Until all of it is visible outside: who starts from there publishes nothing of it."""

        def ready() -> bool:
            view = self._host.view
            statuses = [view.statuses.get(partition) for partition in view.journal.entries]
            return all(status and status.shown >= fixed.at for status in statuses)

        what = f"all that sinks have committed up to epoch {fixed.at} to be visible outside"
        wait_until(self._host, ready, what, HELD_EPOCHS * epoch_ms / 1000)

    def kept(self, store: Any, operators: Iterable[str]) -> tuple[int, dict[str, list[Checkpoint]]]:
        """An epoch, and what these operators have saved of it."""
        names = list(dict.fromkeys(operators))
        for _ in range(ATTEMPTS):
            with self.fixed() as fixed:
                try:
                    return fixed.at, {name: self._read(store, fixed, name) for name in names}
                except _GoneError:
                    continue
                except DataLoss:
                    if any((r.number, r.at) == (fixed.number, fixed.at) for r in self._pending()):
                        raise
        raise Retry("somebody died each time one epoch was to be read; try again")

    def saves(self, store: Any, fixed: Replace) -> list[Callable[[], Checkpoint]]:
        """What reads the checkpoint of each partition. Of one that has died, the newest may be of another epoch."""
        try:
            return [partial(whole, store, p, self._version(fixed, p)) for p in fixed.old]
        except _GoneError:
            raise Retry("somebody died when one epoch was to be read; try again") from None

    def _read(self, store: Any, fixed: Replace, operator: str) -> list[Checkpoint]:
        kept = [(p, self._version(fixed, p)) for p in fixed.old if p.operator == operator]
        return [whole(store, partition, version) for partition, version in kept]

    def _version(self, fixed: Replace, partition: PartitionId) -> int:
        status = self._host.view.statuses.get(partition)
        if status is None or status.fixed_epoch != fixed.at or not status.fixed_version:
            raise _GoneError
        return status.fixed_version

    def _pending(self) -> list[Replace]:
        return [r for r in self._host.view.journal.replaces if not r.operator]

    def _is_kept(self, fixed: Replace) -> bool:
        view = self._host.view
        statuses = [view.statuses.get(p) for p in fixed.old]
        others = [
            view.statuses.get(e.partition)
            for e in view.journal.entries.values()
            if e.role == LIVE and e.partition not in fixed.old
        ]
        return all(s and s.fixed_version and s.fixed_epoch == fixed.at for s in statuses) and all(
            s and s.fixed_epoch == fixed.at and (s.epoch >= fixed.at or s.ended) for s in others
        )

    def _release(self) -> None:
        for pending in self._pending():
            self._host.request(ReleaseEpoch(pending.number))


def wait_until(host: ControllerHost, done: Callable[[], bool], what: str, more_seconds: float = 0.0) -> None:
    """Raises Retry when it takes too long, or the flow has ended before."""
    seconds = PATIENCE_SECONDS + more_seconds
    deadline = time.monotonic() + seconds
    while not done():
        if host.outcome:
            raise Retry(f"{what}: the flow has {host.outcome}")
        if time.monotonic() > deadline:
            latest = next((said for _, said in reversed(host.view.decisions)), "nothing")
            raise Retry(f"{what}: not done within {seconds:.0f} s; the controller's last step: {latest}")
        time.sleep(0.005)
