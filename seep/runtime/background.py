"""What blocks (the disk, a sink's outside) happens on background threads; answers come back to the one loop.

Appends to epoch logs hold back the announcement of epochs, so they never wait behind a checkpoint of many megabytes:
each kind of work has threads of its own. Whoever writes checkpoints gives way to everybody else on the machine: nobody
waits for them, while rows, and partitions that are being restored, are waited for.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from seep.errors import SeepError
from seep.model.ids import PartitionId
from seep.partition.desk import failure_of, unpublished
from seep.partition.sink import SinkPartition
from seep.protocol.effects import (
    DropCheckpoints,
    FindCheckpoint,
    LoadCheckpoints,
    Publish,
    Published,
    PutCheckpoint,
    StoreReply,
)
from seep.runtime.clock import now_ms
from seep.runtime.numbers import Saved
from seep.runtime.stores.base import FAILED, Store, StoreEffect

LOG_THREADS = 4
LOAD_THREADS = 2
SAVE_THREADS = 1
FOLD_THREADS = 1
SAVE_NICENESS = 10
PUBLISH_RETRY_SECONDS = 0.5
PUBLISH_BYTES = 8 << 20
COMPLAIN_MS = 30_000.0


def give_way() -> None:
    """This thread runs when nobody else wants to (only Linux has niceness by thread)."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SAVE_NICENESS)


class Lane:
    """What one partition of a sink has to publish, and the thread that does it."""

    def __init__(self, sink: SinkPartition, is_here: Callable[[], bool]) -> None:
        self.sink = sink
        self.is_here = is_here
        self.waiting: deque[Publish] = deque()
        self.thread = ThreadPoolExecutor(1, "seep-publish")
        self.latest: Future[None] | None = None
        self.failed = False
        """For good: what comes after must not be shown without it."""
        self._complained_ms = -COMPLAIN_MS

    def take(self) -> list[Publish]:
        found: list[Publish] = []
        size = 0
        while self.waiting and size < PUBLISH_BYTES:
            found.append(self.waiting.popleft())
            size += len(found[-1].record or b"")
        return found

    def is_over(self) -> bool:
        """Its partition runs elsewhere now, or nowhere, and its thread is at rest."""
        return not self.is_here() and (self.latest is None or self.latest.done())

    def complain(self, problem: OSError, what_now: str) -> None:
        if now_ms() - self._complained_ms > COMPLAIN_MS:
            self._complained_ms = now_ms()
            print(unpublished(self.sink.entry.partition, problem, what_now), file=sys.stderr, flush=True)


class Background:
    """Performs effects off the loop. `wake` is called from its threads whenever an answer is ready."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._answers: deque[StoreReply | Published] = deque()
        self._logs = ThreadPoolExecutor(LOG_THREADS, "seep-log")
        self._loads = ThreadPoolExecutor(LOAD_THREADS, "seep-load")
        self._saves = ThreadPoolExecutor(SAVE_THREADS, "seep-save", give_way)
        self._folds = ThreadPoolExecutor(FOLD_THREADS, "seep-fold", give_way)
        self._lanes: dict[PartitionId, Lane] = {}
        self._closing = threading.Event()
        self.publish_failures = 0
        self.store_failures = 0
        self.saved: dict[PartitionId, Saved] = {}
        """What writing checkpoints has cost; each partition writes one at a time."""
        self.broken: list[BaseException] = []
        """Errors that no answer stands for: defects, to be raised in the loop."""

    def perform(self, effect: StoreEffect) -> None:
        work, pool = self._store.perform, self._logs
        if isinstance(effect, PutCheckpoint):
            work, pool = self._put, self._saves
        elif isinstance(effect, LoadCheckpoints | FindCheckpoint | DropCheckpoints):
            pool = self._loads
        pool.submit(self._run, lambda: work(effect))

    def publish(self, sink: SinkPartition, effect: Publish, is_here: Callable[[], bool]) -> None:
        """In the order of the calls, until it works, or until the sink's partition is no longer here: its outside may
        be down for a while. Each has a thread of its own, so that it holds up no other."""
        who = effect.partition
        lane = self._lanes.get(who)
        if lane is None or lane.sink is not sink:
            if lane is not None:
                lane.thread.shutdown(wait=False)
            lane = self._lanes[who] = Lane(sink, is_here)
        lane.waiting.append(effect)
        lane.latest = lane.thread.submit(self._run, lambda: self._publish(lane))

    def let_go(self) -> None:
        """Of the sinks that are no longer here: their threads, and what they hold of the outside."""
        for who in [who for who, lane in self._lanes.items() if lane.is_over()]:
            self._lanes.pop(who).thread.shutdown(wait=False)

    def answers(self) -> list[StoreReply | Published]:
        """What has been answered since the last call. Raises what broke."""
        if self.broken:
            raise self.broken[0]
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        return found

    def close(self) -> None:
        """Finish what has begun."""
        self._closing.set()
        lanes = [lane.thread for lane in self._lanes.values()]
        # Of a sink that may show each epoch once, nobody shows later what is left out now.
        later = [self._folds, *(lane.thread for lane in self._lanes.values() if lane.sink.outlet.repeats)]
        for pool in (self._logs, self._loads, self._saves, self._folds, *lanes):
            pool.shutdown(wait=True, cancel_futures=pool in later)

    def _run(self, work: Callable[[], StoreReply | Published | None]) -> None:
        try:
            answer = work()
        except Exception as error:
            self.broken.append(error)
            self._wake()
            return
        if isinstance(answer, StoreReply) and answer.error == FAILED:
            self.store_failures += 1
        if answer is not None:
            self._answers.append(answer)
            self._wake()

    def _put(self, effect: StoreEffect) -> StoreReply | None:
        began_ms = now_ms()
        reply = self._store.perform(effect)
        assert isinstance(effect, PutCheckpoint)
        state, partition = effect.checkpoint.state, effect.checkpoint.partition
        before = self.saved.get(partition, Saved())
        if reply is not None and reply.error:
            self.saved[partition] = before._replace(failed=before.failed + 1)
        else:
            size_bytes = getattr(state, "size_bytes", 0)
            took = before.took.with_one(now_ms() - began_ms)
            self.saved[partition] = Saved(before.written + 1, before.failed, before.size_bytes + size_bytes, took)
            if not self._closing.is_set():
                self._folds.submit(self._run, lambda: self._store.fold(partition, effect.checkpoint.generation))
        return reply

    def _publish(self, lane: Lane) -> Published | None:
        """All that waits, together: a sink may have a price for each call."""
        effects = lane.take()
        if not effects or lane.failed:
            return None
        who, generation = effects[0].partition, lane.sink.entry.generation
        commits = [(effect.epoch, effect.record, effect.ended) for effect in effects]
        while lane.is_here():
            try:
                upto = lane.sink.outlet.publish(commits)
                return Published(who, upto, len(effects), generation=generation)
            except SeepError as error:
                lane.failed = True
                return Published(who, -1, len(effects), failure_of(who, error), generation)
            except OSError as problem:
                self.publish_failures += 1
                if not lane.sink.outlet.repeats:
                    first, last = commits[0][0], commits[-1][0]
                    lane.complain(problem, f"epochs {first} to {last} may be lost (at most once)")
                    return Published(who, last, len(effects), generation=generation)
                lane.complain(problem, "trying again")
                if self._closing.wait(PUBLISH_RETRY_SECONDS):
                    return None
        return None
