"""A seeded world: workers, a controller and a store as events on one heap, in virtual time.

The machines are the shipped ones. Links are FIFO and may be slow, cut at any frame or deaf in one direction; a
worker may crash, pause and wake up as a zombie, or be slow; the controller may crash at any step. Without faults this
is also the backend of ``on="inline"`` and of `seep.testing.Driver`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from seep.control.controller import Controller
from seep.control.requests import Request, WorkerLost
from seep.model.ids import CONTROLLER
from seep.model.settings import Settings
from seep.partition.contract import Graph
from seep.partition.sink import SinkPartition
from seep.partition.worker import Worker
from seep.protocol.effects import Effect, Publish, Published, ReleaseWorker, Send, StoreReply, WantWorkers
from seep.protocol.journal import Journal
from seep.sim.store import SimStore

START_WALL_MS = 1_700_000_000_000
TICK_MS = 5.0


class SimNode:
    """One process: a machine, and whether it is alive, asleep or slow."""

    def __init__(self, name: str, machine: Worker | Controller) -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self.asleep_until = 0.0
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
    ) -> None:
        self.graph, self.settings, self.random = graph, settings, random
        self.workers, self.parts, self.first, self.jitter_ms = workers, parts, first, jitter_ms
        self.now_ms = 0.0
        self.store = SimStore()
        self.wall_ms = wall_ms or (lambda: START_WALL_MS + int(self.now_ms))
        self.nodes: dict[str, SimNode] = {}
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.link_free_ms: dict[tuple[str, str], float] = {}
        self.deaf_until: dict[tuple[str, str], float] = {}
        self.spawned = 0
        self.want = 0
        self.messages = 0
        self.store_errors = 0.0
        """Share of store calls that fail, half of them after they took effect."""
        self.counts: Counter[str] = Counter()
        self.failure: str = ""
        self.start_controller()

    # --- the heap ------------------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (self.now_ms + delay_ms, self.sequence, action))

    def run_until(self, done: Callable[[], bool], limit_ms: float) -> bool:
        """Step until `done` says so (looked at after every event); False when the time is up first."""
        while not done():
            if not self.heap or self.heap[0][0] > limit_ms:
                return False
            self.now_ms, _, action = heapq.heappop(self.heap)
            action()
        return True

    # --- processes -----------------------------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        machine = self.nodes[CONTROLLER].machine
        assert isinstance(machine, Controller)
        return machine

    def start_controller(self) -> None:
        machine = Controller(self.graph, self.settings, self.workers, self.parts, self.first)
        node = self.nodes[CONTROLLER] = SimNode(CONTROLLER, machine)
        self.at(0.0, lambda: self._tick(node))

    def start_worker(self) -> None:
        self.spawned += 1
        name = f"w{self.spawned}"
        node = self.nodes[name] = SimNode(name, Worker(name, self.graph, self.settings))
        self.at(0.0, lambda: self._tick(node))

    def live_workers(self) -> list[SimNode]:
        return [n for n in self.nodes.values() if n.alive and n.name != CONTROLLER]

    def crash(self, name: str, detect_ms: float = 3.0) -> None:
        """SIGKILL: everything volatile is gone; the controller hears of the closed connection a little later."""
        node = self.nodes[name]
        node.alive = False
        if name == CONTROLLER:
            return
        del self.nodes[name]
        self.at(detect_ms, lambda: self._to_controller(WorkerLost(name)))
        self.at(detect_ms + 20.0 * self.random.random(), self._respawn)

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
        if node.asleep_until > self.now_ms:
            self.at(node.asleep_until - self.now_ms, lambda: self._tick(node))
            return
        if isinstance(node.machine, Controller):
            effects = node.machine.tick(self.now_ms)
        else:
            effects = node.machine.tick(self.now_ms, self.wall_ms() + node.clock_offset_ms)
        self._perform(node, effects)
        jitter = self.random.random() if self.jitter_ms else 0.0
        self.at(TICK_MS + jitter + node.slowness_ms, lambda: self._tick(node))

    # --- effects -------------------------------------------------------------------------------------------------

    def _perform(self, node: SimNode, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node.name, effect.to, effect.message)
            elif isinstance(effect, WantWorkers):
                self.want = effect.count
                self.at(1.0 + self.jitter_ms * self.random.random(), self._respawn)
            elif isinstance(effect, Publish):
                self._publish(node, effect)
            elif not isinstance(effect, ReleaseWorker):
                self._store(node, effect)

    def _publish(self, node: SimNode, effect: Publish) -> None:
        assert isinstance(node.machine, Worker)
        partition = node.machine.partitions.get(effect.partition)
        if isinstance(partition, SinkPartition):
            upto = partition.outlet.publish(effect.epoch, effect.record, effect.ended)
            self.at(0.1, lambda: self._deliver(node, Published(effect.partition, upto)))

    def _store(self, node: SimNode, effect: Any) -> None:
        failing = self.store_errors and self.random.random() < self.store_errors
        after = failing and self.random.random() < 0.5

        def arrive() -> None:
            reply = self.store.perform(effect) if not failing or after else None
            if failing and hasattr(effect, "token"):
                self.counts["store errors"] += 1
                reply = StoreReply(effect.token, error="failed")
            if reply is not None:
                answer = reply
                self.at(self._delay(), lambda: self._deliver(node, answer))

        self.at(self._store_delay(node), arrive)

    def _delay(self) -> float:
        return 0.2 + (self.random.random() * self.jitter_ms if self.jitter_ms else 0.0)

    def _store_delay(self, node: SimNode) -> float:
        # One process's calls reach the store in their order.
        free = max(self.link_free_ms.get((node.name, "store"), 0.0), self.now_ms + self._delay())
        self.link_free_ms[node.name, "store"] = free
        return free - self.now_ms

    def _send(self, source: str, target: str, message: Any) -> None:
        link = (source, target)
        if self.deaf_until.get(link, 0.0) > self.now_ms:
            self.counts["frames lost"] += 1
            return
        arrival = max(self.link_free_ms.get(link, 0.0), self.now_ms + self._delay())
        self.link_free_ms[link] = arrival

        def arrive() -> None:
            node = self.nodes.get(target)
            if node is None or not node.alive:
                return
            if self.deaf_until.get(link, 0.0) > self.now_ms:
                self.counts["frames lost"] += 1
                return
            self._deliver(node, message)

        self.at(arrival - self.now_ms, arrive)

    def _deliver(self, node: SimNode, event: Any) -> None:
        if not node.alive:
            return
        if node.asleep_until > self.now_ms:
            self.at(node.asleep_until - self.now_ms, lambda: self._deliver(node, event))
            return
        self.messages += 1
        self._perform(node, node.machine.handle(event, self.now_ms))
