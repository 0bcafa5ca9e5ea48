"""Faults as data: a plan of what goes wrong and when, drawn from the seed, and what each does to the world."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from seep.control.controller import Controller
from seep.control.requests import FixEpoch, ReleaseEpoch, ScaleTo, StopFlow
from seep.model.ids import CONTROLLER, PartitionId
from seep.partition.operator import OperatorPartition
from seep.partition.worker import Worker
from seep.sim.world import SimNode, World

KINDS = (
    "crash",
    "crash two",
    "crash replaced",
    "pause",
    "deaf",
    "cut",
    "slow",
    "clock",
    "controller",
    "controller in replace",
    "store",
    "damage",
    "scale",
    "scale",
    "scale",
    "scale neighbours",
    "fix epoch",
    "drain",
)


@dataclass(frozen=True)
class Fault:
    at_ms: float
    kind: str
    pick: int
    """Chooses the victim among those there are."""
    length_ms: float


def draw_faults(random: Random, until_ms: float) -> list[Fault]:
    """Swarm: each seed has its own subset of kinds, so that rare ones also meet undisturbed."""
    kinds = [kind for kind in KINDS if random.random() < 0.6] or ["crash", "scale"]
    if "drain" in kinds and random.random() < 0.8:
        kinds.remove("drain")  # it ends the flow early: not too often
    if "scale" not in kinds and random.random() < 0.7:
        kinds.append("scale")
    count = random.randint(9, 16)
    return sorted((_draw(random, random.choice(kinds), until_ms) for _ in range(count)), key=lambda fault: fault.at_ms)


def _draw(random: Random, kind: str, until_ms: float) -> Fault:
    at_ms = 20.0 + random.random() * until_ms
    if kind == "drain":
        at_ms = max(at_ms, 20.0 + until_ms * 0.9)  # late: what it cuts off is not tested
    length_ms = random.choice((5.0, 30.0, 120.0, 400.0)) * (0.5 + random.random())
    return Fault(at_ms, kind, random.randrange(1 << 30), length_ms)


class Injector:
    """Performs faults, and notes which step of the protocol each one interrupted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hits = 0
        self.interrupted: Counter[str] = Counter()
        self.damaged: set[PartitionId] = set()
        self.beyond = False
        """More copies of one checkpoint were damaged than the promise covers: the flow may stop, loudly."""

    def schedule(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.world.at(fault.at_ms, lambda fault=fault: self.perform(fault))  # type: ignore[misc]

    def perform(self, fault: Fault) -> None:
        world, kind = self.world, fault.kind
        workers = sorted((n for n in world.live_workers() if _busy(n)), key=lambda n: n.name)
        controller = world.nodes[CONTROLLER]
        if kind.startswith("scale"):
            self._scale(fault, 2 if kind == "scale neighbours" else 1)
        elif kind == "fix epoch":
            world.request(FixEpoch())
            world.at(fault.length_ms, self._release_epoch)
        elif kind == "drain":
            world.request(StopFlow("drain"))
        elif kind.startswith("controller"):
            self._crash_controller(fault, kind == "controller in replace")
        elif kind == "store":
            world.store_errors = 0.3
            world.at(fault.length_ms, self._store_heals)
            self.hits += 1
        elif not workers:
            return
        elif kind in ("crash", "crash two", "crash replaced"):
            if kind == "crash replaced":
                workers = [n for n in workers if _replacing(n)] or workers
            for offset in range(2 if kind == "crash two" else 1):
                victim = workers[(fault.pick + offset) % len(workers)]
                if victim.alive:
                    self._note(victim)
                    world.crash(victim.name, detect_ms=0.5 + fault.pick % 7)
        elif kind == "pause":
            victim = workers[fault.pick % len(workers)]
            self._note(victim)
            victim.asleep_until = world.now_ms + fault.length_ms
        elif kind in ("deaf", "cut"):
            self._cut(fault, [*workers, controller], both=kind == "cut")
        elif kind == "slow":
            victim = workers[fault.pick % len(workers)]
            victim.slowness_ms = 10.0 + fault.pick % 40
            self.hits += 1
        elif kind == "clock":
            workers[fault.pick % len(workers)].clock_offset_ms += fault.pick % 200_000 - 100_000
            self.hits += 1
        elif kind == "damage":
            # A write torn by a crash: the newest checkpoint of each operator partition that dies with the worker.
            victim = workers[fault.pick % len(workers)]
            self._note(victim)
            assert isinstance(victim.machine, Worker)
            for partition in victim.machine.partitions:
                if world.store.damage(partition):
                    self.beyond = self.beyond or partition in self.damaged
                    self.damaged.add(partition)
            world.crash(victim.name)

    def heal(self) -> None:
        """From now on everything works; what is down stays for the machines to bring back."""
        world = self.world
        world.store_errors = 0.0
        world.deaf_until.clear()
        for node in world.nodes.values():
            node.slowness_ms = 0.0
            node.asleep_until = min(node.asleep_until, world.now_ms)
        if not world.nodes[CONTROLLER].alive:
            world.start_controller()

    def _release_epoch(self) -> None:
        if self.world.nodes[CONTROLLER].alive:
            for replace in self.world.controller.journal.replaces:
                if not replace.operator:
                    self.world.request(ReleaseEpoch(replace.number))

    def _store_heals(self) -> None:
        self.world.store_errors = 0.0

    def _scale(self, fault: Fault, operators: int) -> None:
        names = list(self.world.graph.nodes)
        for offset in range(operators):
            name = names[(fault.pick + offset) % len(names)]
            self.world.request(ScaleTo(name, 1 + (fault.pick >> 8) % 4))

    def _crash_controller(self, fault: Fault, in_replace: bool) -> None:
        world = self.world
        if not world.nodes[CONTROLLER].alive:
            return
        controller = world.controller
        if in_replace and not controller.journal.replaces and not controller.wanted:
            world.at(3.0, lambda: self._crash_controller(fault, False))
            return
        self.interrupted.update(controller_steps(controller))
        self.hits += 1
        world.crash(CONTROLLER)
        world.at(fault.length_ms, lambda: None if world.nodes[CONTROLLER].alive else world.start_controller())

    def _cut(self, fault: Fault, nodes: list[SimNode], both: bool) -> None:
        one = nodes[fault.pick % len(nodes)].name
        other = nodes[(fault.pick >> 5) % len(nodes)].name
        if one == other:
            return
        until_ms = self.world.now_ms + fault.length_ms
        self.world.deaf_until[one, other] = until_ms
        if both:
            self.world.deaf_until[other, one] = until_ms
        self.hits += 1

    def _note(self, node: SimNode) -> None:
        self.hits += 1
        self.interrupted.update(named_steps(node))


def named_steps(node: SimNode) -> Counter[str]:
    """The steps of the protocol that this worker is in the middle of."""
    assert isinstance(node.machine, Worker)
    found: Counter[str] = Counter()
    journal = node.machine.desk.journal
    for partition in node.machine.partitions.values():
        entry = partition.entry
        steps = [entry.role]
        if not partition.running:
            steps = ["starting"]
        elif isinstance(partition, OperatorPartition):
            steps += ["checkpoint"] if partition.saver.busy else []
            steps += ["pinned"] if partition.pinned else []
            steps += ["subscribing"] if not partition.inputs.accepted else []
            steps += ["replaying"] if partition.inputs.next_epoch() <= partition.inputs.bound() else []
        elif partition.appending is not None:
            steps += ["log append"]
        replace = journal.replacing(entry.partition)
        if replace is not None and replace.handover:
            steps += ["handing over"]
        found.update(f"{partition.node.kind}: {step}" for step in steps)
    return found


def controller_steps(controller: Controller) -> list[str]:
    """The steps of the protocol that the controller is in the middle of."""
    steps = ["controller: journal swap"] if controller.wanted is not None else []
    for replace in controller.journal.replaces:
        step = "hand-over" if replace.handover else "shadows" if replace.new else "pin"
        steps.append(f"controller: replace, {step}")
    return [*steps, "controller: at rest"]


def _busy(node: SimNode) -> bool:
    return isinstance(node.machine, Worker) and bool(node.machine.partitions)


def _replacing(node: SimNode) -> bool:
    assert isinstance(node.machine, Worker)
    roles = {p.entry.role for p in node.machine.partitions.values()}
    return bool(roles - {"live"})
