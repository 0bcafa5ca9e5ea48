"""A seeded world: workers, a controller and a store as events on one heap, in virtual time.

The machines are the shipped ones. Links are FIFO, those of rows apart, and may be slow, cut at any frame or deaf in one
direction; a worker may crash (with or without anybody told), pause and wake up as a zombie, be busy for long while its
heart beats on, miss its ticks, or be slow; the controller may crash at any step; the store may fail, crash or come back
empty. Without faults this is also the backend of ``on="inline"`` and of `seep.testing.Driver`.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from seep.control.controller import Controller
from seep.control.requests import Request, WorkerLost
from seep.errors import Retry, SeepError
from seep.model.ids import CONTROLLER, Generation, PartitionId
from seep.model.settings import Settings
from seep.partition.contract import Graph, Upgrade
from seep.partition.desk import failure_of, unpublished
from seep.partition.pulse import Pulse
from seep.partition.sink import SinkPartition
from seep.partition.wary import Note
from seep.partition.worker import Worker
from seep.protocol.effects import (
    Effect,
    KillWorker,
    Publish,
    Published,
    PutCheckpoint,
    ReleaseWorker,
    Send,
    StoreReply,
    WantWorkers,
)
from seep.protocol.journal import Journal
from seep.protocol.messages import Message
from seep.protocol.wire import lane
from seep.sim.store import WRITES, SimStore

START_WALL_MS = 1_700_000_000_000
TICK_MS = 5.0
PUBLISH_RETRY_MS = 500.0
PUBLISH_TRIES = 20
WATCH_EVERY = 64
"""Events between two looks of the watch."""


class ProcessDied(BaseException):
    """User code has ended the process that runs it: nothing in there can catch this."""


class SimNotes:
    """`seep.partition.wary.Notes` in what outlives every process."""

    def __init__(self) -> None:
        self.kept: dict[tuple[PartitionId, Generation], Note | None] = {}
        self.waited = 0

    def write(self, partition: PartitionId, generation: Generation, note: Note | None) -> None:
        self.kept[partition, generation] = note

    def read(self, partition: PartitionId, generation: Generation) -> Note | None:
        return self.kept.get((partition, generation))

    def wait(self) -> None:
        self.waited += 1  # a row takes no time here


class SimNode:
    """One process: a machine, and whether it is alive, asleep, busy or slow."""

    def __init__(self, name: str, machine: Worker | Controller) -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self.asleep_until = 0.0
        self.busy_until = 0.0
        """Inside one piece of work: its loop does nothing else, and its heart beats."""
        self.turns = 0
        self.pulse = Pulse(name)
        self.no_tick_until = 0.0
        self.slowness_ms = 0.0
        self.clock_offset_ms = 0


class World:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        random: Random,
        workers: int = 2,
        parts: int = 1,
        first: Journal | None = None,
        jitter_ms: float = 2.0,
        wall_ms: Callable[[], int] | None = None,
        store: SimStore | None = None,
        carry: Callable[[Message], Message] | None = None,
    ) -> None:
        self.graph, self.settings, self.random = graph, settings, random
        self.workers, self.parts, self.first, self.jitter_ms = workers, parts, first, jitter_ms
        self.now_ms = 0.0
        self.store = store or SimStore()
        self.carry = carry
        """What becomes of a message between two processes (its wire form and back); None: it arrives as it is."""
        self.upgrades: dict[str, Upgrade] = {}
        """By code: what operators may be upgraded to."""
        self.wall_ms = wall_ms or (lambda: START_WALL_MS + int(self.now_ms))
        self.nodes: dict[str, SimNode] = {}
        self.heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.sequence = self.events = 0
        self.link_free_ms: dict[tuple[Any, ...], float] = {}
        self.deaf_until: dict[tuple[str, str], float] = {}
        self.spawned = 0
        self.want = 0
        self.unshown: dict[SinkPartition, deque[Publish]] = {}
        """What each has to publish and could not yet."""
        self.published: dict[PartitionId, int] = {}
        """Up to which epoch each sink has shown what it committed: what it holds back is not there yet."""
        self.messages = 0
        self.notes = SimNotes()
        self.store_errors = 0.0
        """Share of store calls that fail, half of them after they took effect."""
        self.store_down_until = 0.0
        self.store_full_until = 0.0
        """Until then nothing can be written; what is there can be read."""
        self.store_starts = 0
        self.counts: Counter[str] = Counter()
        self.died: Callable[[str], None] = self.crash
        """What becomes of a process that a row has ended."""
        self.watch: Callable[[], None] | None = None
        """Looks at the world every few events, and raises when something is wrong."""
        self.start_controller()

    # --- the heap ------------------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Callable[..., object], *arguments: Any) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (self.now_ms + delay_ms, self.sequence, action, arguments))

    def run_until(self, done: Callable[[], bool], limit_ms: float) -> bool:
        """Step until `done` says so (looked at after every event); False when the time is up first."""
        while not done():
            if not self.heap or self.heap[0][0] > limit_ms:
                return False
            self.now_ms, _, action, arguments = heapq.heappop(self.heap)
            action(*arguments)
        return True

    def run_for(self, span_ms: float) -> None:
        """Everything that happens in the next so many milliseconds."""
        until_ms, heap, watch = self.now_ms + span_ms, self.heap, self.watch
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
            self.events += 1
            if watch is not None and not self.events % WATCH_EVERY:
                watch()
        self.now_ms = until_ms

    # --- processes -----------------------------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        machine = self.nodes[CONTROLLER].machine
        assert isinstance(machine, Controller)
        return machine

    def start_controller(self) -> None:
        ran = bool(self.store.journals)
        machine = Controller(self.graph, self.settings, self.workers, self.parts, self.first, resumes=ran)
        node = self.nodes[CONTROLLER] = SimNode(CONTROLLER, machine)
        self.at(0.0, self._tick, node)

    def start_worker(self) -> None:
        self.spawned += 1
        name = f"w{self.spawned}"
        machine = Worker(name, self.graph, self.settings)
        machine.desk.notes = self.notes
        machine.desk.upgrade = self.upgrades.__getitem__
        node = self.nodes[name] = SimNode(name, machine)
        self.at(0.0, self._tick, node)

    def live_workers(self) -> list[SimNode]:
        return [n for n in self.nodes.values() if n.alive and n.name != CONTROLLER]

    def crash(self, name: str, detect_ms: float | None = 3.0, asked: bool = False, told: bool = True) -> None:
        """SIGKILL: everything volatile is gone; the controller hears of the closed connection a little later, or (None)
        never: then only its silence tells. `asked`: it was the controller's host that killed it. Not `told`:
        no backend says that the process has ended, it may have been the connection."""
        node = self.nodes[name]
        node.alive = False
        if name == CONTROLLER:
            return
        del self.nodes[name]
        if detect_ms is None:
            detect_ms = self.settings.suspect_ms
        else:
            self.at(detect_ms, self._to_controller, WorkerLost(name, asked, told))
        self.at(detect_ms + 20.0 * self.random.random(), self._respawn)

    def occupy(self, node: SimNode, for_ms: float) -> None:
        """From now on a worker is inside one piece of work."""
        node.busy_until = self.now_ms + for_ms
        self._beat(node)

    def _beat(self, node: SimNode) -> None:
        if not node.alive or node.busy_until <= self.now_ms:
            return
        if node.asleep_until <= self.now_ms:
            assert isinstance(node.machine, Worker)
            work = next(((who, 0) for who in node.machine.partitions), None)
            said = node.pulse.look(node.turns, work, self.now_ms)
            if said is not None:
                self._send(node.name, CONTROLLER, said)
        self.at(self.settings.report_ms, self._beat, node)

    def _release(self, name: str) -> None:
        if name in self.nodes:
            self.counts["released"] += 1
            self.crash(name)

    def _to_controller(self, event: WorkerLost | Request) -> None:
        node = self.nodes[CONTROLLER]
        if node.alive:
            self._deliver(node, event)

    def request(self, request: Request) -> None:
        self._to_controller(request)

    def _respawn(self) -> None:
        while len(self.live_workers()) < self.want:
            self.start_worker()

    def _tick(self, node: SimNode) -> None:
        if not node.alive:
            return
        held_until = max(node.asleep_until, node.busy_until, node.no_tick_until)
        if held_until > self.now_ms:
            self.at(held_until - self.now_ms, self._tick, node)
            return
        node.turns += 1
        if isinstance(node.machine, Controller):
            self._perform(node, node.machine.tick(self.now_ms))
        elif not self._runs(node, node.machine.tick, self.now_ms, self.wall_ms() + node.clock_offset_ms):
            return
        jitter = self.random.random() if self.jitter_ms else 0.0
        self.at(TICK_MS + jitter + node.slowness_ms, self._tick, node)

    # --- effects -------------------------------------------------------------------------------------------------

    def _perform(self, node: SimNode, effects: list[Effect]) -> None:
        for effect in effects:
            if not node.alive:  # it has died of what it published
                return
            if isinstance(effect, Send):
                self._send(node.name, effect.to, effect.message)
            elif isinstance(effect, WantWorkers):
                self.want = effect.count
                self.at(1.0 + self.jitter_ms * self.random.random(), self._respawn)
            elif isinstance(effect, Publish):
                self._publish(node, effect)
            elif isinstance(effect, ReleaseWorker):
                self.at(self._delay(), self._release, effect.worker)
            elif not isinstance(effect, KillWorker):  # of those the worst case: out of reach, and up again as a zombie
                in_order = isinstance(effect, PutCheckpoint)  # all else is done by several threads
                delay_ms = self._arrival(node.name, "store") - self.now_ms if in_order else self._delay()
                self.at(delay_ms, self._store, node, effect)

    def _publish(self, node: SimNode, effect: Publish) -> None:
        assert isinstance(node.machine, Worker)
        partition = node.machine.partitions.get(effect.partition)
        if isinstance(partition, SinkPartition):
            waiting = self.unshown.setdefault(partition, deque())
            waiting.append(effect)
            if len(waiting) == 1:
                self._show(node, partition, 1)

    def _show(self, node: SimNode, sink: SinkPartition, tries: int) -> None:
        """What waits, in its order; again when its outside is down, but not without end: in virtual time nobody mends
        it. What comes after one that failed for good stays behind it."""
        assert isinstance(node.machine, Worker)
        waiting = self.unshown[sink]
        while waiting and node.alive and node.machine.partitions.get(waiting[0].partition) is sink:
            effect, who, failure = waiting[0], waiting[0].partition, ""
            try:
                upto = sink.outlet.publish([(effect.epoch, effect.record, effect.ended)])
                self.published[who] = max(self.published.get(who, -1), getattr(sink.outlet, "shown", effect.epoch))
            except ProcessDied:
                self._dies(node)
                break
            except SeepError as error:
                failure = failure_of(who, error)
            except OSError as problem:
                if not sink.outlet.repeats:
                    upto = effect.epoch
                    print(unpublished(who, problem, f"epoch {upto} may be lost (at most once)"), file=sys.stderr)
                elif tries < PUBLISH_TRIES:
                    self.at(PUBLISH_RETRY_MS, self._show, node, sink, tries + 1)
                    return
                else:
                    given_up = Retry(unpublished(who, problem, f"tried {tries} times (mend it and run again)"))
                    failure = failure_of(who, given_up)
            if failure:
                self.at(0.1, self._deliver, node, Published(who, -1, failure=failure))
                return
            waiting.popleft()
            tries = 1
            self.at(0.1, self._deliver, node, Published(who, upto))
        del self.unshown[sink]

    def _delay(self) -> float:
        return 0.2 + (self.random.random() * self.jitter_ms if self.jitter_ms else 0.0)

    def _arrival(self, *link: Any) -> float:
        """Links (source, target, lane) are FIFO."""
        arrival = self.now_ms + self._delay()
        free = self.link_free_ms.get(link, 0.0)
        if free > arrival:
            arrival = free
        self.link_free_ms[link] = arrival
        return arrival

    # --- the store -----------------------------------------------------------------------------------------------

    def _store(self, node: SimNode, effect: Any) -> None:
        token = getattr(effect, "token", None)
        failing = self.store_errors and self.random.random() < self.store_errors
        full_until = self.store_full_until if isinstance(effect, WRITES) else 0.0
        down = self.now_ms < max(full_until, self.store_down_until)
        answered_ms = self.now_ms + self._delay()
        reply = None
        if not down and (not failing or self.random.random() < 0.5):
            reply = self.store.perform(effect, self.now_ms, answered_ms)
        if (failing or down) and token is not None:
            self.counts["store errors"] += 1
            reply = StoreReply(token, error="failed")
        if reply is not None:
            self.at(answered_ms - self.now_ms, self._answer, node, reply, self.store_starts)

    def _answer(self, node: SimNode, reply: StoreReply, starts: int) -> None:
        # Answers that were under way when the store crashed are lost with the connection.
        self._deliver(node, reply if starts == self.store_starts else StoreReply(reply.token, error="failed"))

    def crash_store(self, down_ms: float) -> None:
        """It loses what it has not answered for, and is away for a time."""
        self.store_starts += 1
        self.store_down_until = self.now_ms + down_ms
        self.store.lose_tail(self.now_ms, self.random)

    # --- messages ------------------------------------------------------------------------------------------------

    def _send(self, source: str, target: str, message: Any) -> None:
        if self.deaf_until and self.deaf_until.get((source, target), 0.0) > self.now_ms:
            self.counts["frames lost"] += 1
            return
        if self.carry is not None:
            message = self.carry(message)
        arrival = self._arrival(source, target, lane(message))
        self.sequence += 1
        heapq.heappush(self.heap, (arrival, self.sequence, self._arrive, (source, target, message)))

    def _arrive(self, source: str, target: str, message: Any) -> None:
        node = self.nodes.get(target)
        if node is None or not node.alive:
            return
        if self.deaf_until and self.deaf_until.get((source, target), 0.0) > self.now_ms:
            self.counts["frames lost"] += 1
            return
        self._deliver(node, message)

    def _deliver(self, node: SimNode, event: Any) -> None:
        if not node.alive:
            return
        held_until = max(node.asleep_until, node.busy_until)
        if held_until > self.now_ms:
            self.at(held_until - self.now_ms, self._deliver, node, event)
            return
        self.messages += 1
        node.turns += 1
        self._runs(node, node.machine.handle, event, self.now_ms)

    def _runs(self, node: SimNode, work: Callable[..., list[Effect]], *arguments: Any) -> bool:
        """Do it; False: the process has died of it, and what it had decided is lost."""
        try:
            effects = work(*arguments)
        except ProcessDied:
            self._dies(node)
            return False
        self._perform(node, effects)
        return True

    def _dies(self, node: SimNode) -> None:
        self.counts["died of a row"] += 1
        self.died(node.name)
