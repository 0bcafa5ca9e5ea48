"""What each fault does to the world, and which step of the protocol it interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace as with_fields

from seep.control.requests import FixEpoch, Rebalance, ReleaseEpoch, ScaleTo, StopFlow, Upgrade
from seep.model.ids import BUCKETS, CONTROLLER, EVERYTHING, KeyRange, PartitionId
from seep.partition.operator import OperatorPartition
from seep.partition.worker import Worker
from seep.sim.faults import ASKING, CRASH, GROWING, RESERVE, Fault
from seep.sim.flows import DrawnFlow
from seep.sim.interrupted import controller_steps, named_steps
from seep.sim.world import SimNode, World

RECENT_MS = 40.0
"""A link that carried something so lately is one worth cutting."""
AGAIN_MS = 4.0
TRIES = 12


class Injector:
    """Performs faults. One that finds nothing to hit tries again a little later."""

    def __init__(self, world: World, flow: DrawnFlow) -> None:
        self.world, self.flow = world, flow
        self.hits = 0
        self.kinds: Counter[str] = Counter()
        self.interrupted: Counter[str] = Counter()
        self.healed = False
        self.wiped = False
        self.acts: dict[str, Callable[[Fault], bool]] = {
            CRASH: self._crash,
            "crash two": self._crash_two,
            "crash replaced": self._crash_replaced,
            "half-open": self._half_open,
            "pause": self._pause,
            "busy": self._busy,
            "timers": self._timers,
            "deaf": self._cut,
            "cut": self._cut,
            "slow": self._slow,
            "clock": self._clock,
            "controller": self._crash_controller,
            "controller in replace": self._crash_controller,
            "store": self._store_errors,
            "lost tail": self._lost_tail,
            "damage": self._damage,
            "forget copies": self._forget_copies,
            "idle": self._idle,
            GROWING: self._grow,
            "scale": self._scale,
            "scale neighbours": self._scale,
            "upgrade": self._upgrade,
            "fix epoch": self._fix_epoch,
            "drain": self._drain,
            "flip": self._flip,
            "wipe": self._wipe,
        }

    def perform(self, fault: Fault, tries: int = TRIES) -> bool:
        """Did it hit now?"""
        if self.healed:
            return False
        hit = self.acts[fault.kind](fault)
        if not hit and fault.part == RESERVE and fault.kind != CRASH:
            # The reserve is there to hit.
            return self.perform(with_fields(fault, kind=CRASH), tries)
        if hit:
            self.hits += fault.kind not in (*ASKING, GROWING)
            self.kinds[fault.kind] += 1
        elif tries > 1:
            self.world.at(AGAIN_MS, self.perform, fault, tries - 1)
        return hit

    def heal(self) -> None:
        """From now on everything works; what is down stays for the machines to bring back."""
        world, self.healed = self.world, True
        world.store_errors = world.store_down_until = world.store_full_until = 0.0
        world.deaf_until.clear()
        for node in world.nodes.values():
            node.slowness_ms = node.no_tick_until = 0.0
            node.asleep_until = min(node.asleep_until, world.now_ms)
            node.busy_until = min(node.busy_until, world.now_ms)
        for supply in self.flow.supplies.values():
            supply.paused.clear()
        if not world.nodes[CONTROLLER].alive:
            world.start_controller()

    # --- workers -------------------------------------------------------------------------------------------------

    def _workers(self) -> list[SimNode]:
        """Those that run something."""
        found = [n for n in self.world.live_workers() if isinstance(n.machine, Worker) and n.machine.partitions]
        return sorted(found, key=lambda node: node.name)

    def _victim(self, fault: Fault, nodes: list[SimNode] | None = None) -> SimNode | None:
        nodes = self._workers() if nodes is None else nodes
        victim = nodes[fault.pick % len(nodes)] if nodes else None
        if victim is not None and victim.name != CONTROLLER:
            self.interrupted.update(named_steps(victim))
        return victim

    def _kill(self, victim: SimNode | None, detect_ms: float | None) -> bool:
        if victim is not None:
            self.world.crash(victim.name, detect_ms)
        return victim is not None

    def _crash(self, fault: Fault) -> bool:
        return self._kill(self._victim(fault), 0.5 + fault.pick % 7)

    def _crash_two(self, fault: Fault) -> bool:
        hit = self._crash(fault)
        self._crash(fault)
        return hit

    def _crash_replaced(self, fault: Fault) -> bool:
        """One that takes part in a Replace."""
        return self._kill(self._victim(fault, [n for n in self._workers() if _replacing(n)]), 0.5)

    def _half_open(self, fault: Fault) -> bool:
        """It dies, and no connection closes: only its silence tells."""
        return self._kill(self._victim(fault), None)

    def _pause(self, fault: Fault) -> bool:
        """Asleep; when it is for long, it wakes up as a zombie."""
        victim, suspect_ms = self._victim(fault), self.world.settings.suspect_ms
        if victim is not None:
            length_ms = suspect_ms + fault.length_ms / 4 if fault.pick >> 9 & 1 else fault.length_ms
            victim.asleep_until = self.world.now_ms + length_ms
        return victim is not None

    def _busy(self, fault: Fault) -> bool:
        """Inside one piece of work, often for longer than one may be silent; its heart beats."""
        victim, suspect_ms = self._victim(fault), self.world.settings.suspect_ms
        if victim is not None:
            length_ms = fault.length_ms + (suspect_ms if fault.pick >> 9 & 1 else 0.0)
            self.world.occupy(victim, length_ms)
        return victim is not None

    def _timers(self, fault: Fault) -> bool:
        """No tick for a while; messages are handled."""
        victim = self._victim(fault, [*self._workers(), *self._controllers()])
        if victim is not None:
            victim.no_tick_until = self.world.now_ms + fault.length_ms
        return victim is not None

    def _slow(self, fault: Fault) -> bool:
        victim = self._victim(fault)
        if victim is not None:
            victim.slowness_ms = 10.0 + fault.pick % 40
        return victim is not None

    def _clock(self, fault: Fault) -> bool:
        victim = self._victim(fault)
        if victim is not None:
            victim.clock_offset_ms += fault.pick % 200_000 - 100_000
        return victim is not None

    def _forget_copies(self, fault: Fault) -> bool:
        """A worker loses the checkpoints it holds in memory for others."""
        holders = [n for n in self._workers() if isinstance(n.machine, Worker) and n.machine.holder.chains]
        victim = self._victim(fault, holders)
        if victim is not None and isinstance(victim.machine, Worker):
            victim.machine.holder.chains.clear()
            victim.machine.holder.bytes.clear()
        return victim is not None

    # --- links and controller ------------------------------------------------------------------------------------

    def _cut(self, fault: Fault) -> bool:
        """A link in use, in one direction or both."""
        world, nodes = self.world, self.world.nodes
        since_ms = world.now_ms - RECENT_MS
        busy = (link[:2] for link, ms in world.link_free_ms.items() if ms > since_ms)
        used = list(dict.fromkeys(link for link in busy if link[0] in nodes and link[1] in nodes))
        if not used:
            return False
        one, other = used[fault.pick % len(used)]
        world.deaf_until[one, other] = world.now_ms + fault.length_ms
        if fault.kind == "cut":
            world.deaf_until[other, one] = world.now_ms + fault.length_ms
        return True

    def _controllers(self) -> list[SimNode]:
        node = self.world.nodes[CONTROLLER]
        return [node] if node.alive else []

    def _crash_controller(self, fault: Fault) -> bool:
        world = self.world
        if not self._controllers():
            return False
        controller = world.controller
        if fault.kind == "controller in replace" and not controller.journal.replaces and not controller.wanted:
            return False
        self.interrupted.update(controller_steps(controller))
        world.crash(CONTROLLER)
        world.at(fault.length_ms, lambda: None if world.nodes[CONTROLLER].alive else world.start_controller())
        return True

    # --- store ---------------------------------------------------------------------------------------------------

    def _store_errors(self, fault: Fault) -> bool:
        """Some calls fail, half of them after they took effect; or all that write something: the disk is full."""
        world = self.world
        if world.store_errors:
            return False
        if fault.pick >> 13 & 1:
            world.store_full_until = world.now_ms + fault.length_ms
            return True
        world.store_errors = 0.3
        world.at(fault.length_ms, lambda: setattr(world, "store_errors", 0.0))
        return True

    def _lost_tail(self, fault: Fault) -> bool:
        """It crashes, loses what it had not answered for, and is away for a moment."""
        world = self.world
        if world.store_down_until > world.now_ms or not world.store.may_lose(world.now_ms):
            return False
        world.crash_store(fault.length_ms / 4)
        return True

    def _damage(self, fault: Fault) -> bool:
        """A write torn by a crash: the newest checkpoint of each operator partition that dies with its worker."""
        world = self.world
        fit = [n for n in self._workers() if any(map(world.store.may_damage, _operators(n)))]
        if not fit:
            return False
        victim = fit[fault.pick % len(fit)]
        self.interrupted.update(named_steps(victim))
        for partition in _operators(victim):
            world.store.damage(partition)
        return self._kill(victim, 3.0)

    def _flip(self, fault: Fault) -> bool:
        """A bit of a stored checkpoint flips, and nobody knows. What is written on top of it is lost with it, until the
        next full one: then the newest two may be unusable, which the promise does not cover."""
        store = self.world.store
        fit = [p for n in self._workers() for p in _operators(n) if store.may_damage(p)]
        low = (fault.pick >> 11) % 4 * (BUCKETS // 4)
        where = KeyRange(low, low + BUCKETS // 4) if fault.pick >> 10 & 1 else EVERYTHING
        return bool(fit) and store.damage(fit[fault.pick % len(fit)], where)

    def _wipe(self, fault: Fault) -> bool:
        """The store comes back empty."""
        self.world.crash_store(fault.length_ms / 4)
        self.world.store.wipe()
        self.wiped = True
        return True

    # --- input, and what is asked for ----------------------------------------------------------------------------

    def _idle(self, fault: Fault) -> bool:
        """A split has nothing new for a while."""
        names = sorted(self.flow.supplies)
        name = names[fault.pick % len(names)]
        supply, split = self.flow.supplies[name], (fault.pick >> 5) % self.flow.splits[name]
        if split in supply.paused or supply.ends is not None:
            return False
        supply.paused.add(split)
        self.world.at(fault.length_ms, lambda: supply.paused.discard(split))
        return True

    def _grow(self, fault: Fault) -> bool:
        """A split more: the next number, or one far away."""
        names = sorted(self.flow.supplies)
        name = names[fault.pick % len(names)]
        supply = self.flow.supplies[name]
        if supply.ends is None:
            far = fault.pick >> 4 & 1
            supply.later.append((fault.pick << 20 if far else self.flow.splits[name]) + len(supply.later))
        return supply.ends is None

    def _scale(self, fault: Fault) -> bool:
        names = list(self.world.graph.nodes)
        for offset in range(2 if fault.kind == "scale neighbours" else 1):
            name = names[(fault.pick + offset) % len(names)]
            rebalance = (fault.pick >> 16) % 5 == 0
            self.world.request(Rebalance(name) if rebalance else ScaleTo(name, 1 + (fault.pick >> 8) % 4))
        return True

    def _upgrade(self, fault: Fault) -> bool:
        codes = list(self.world.upgrades)
        code = codes[fault.pick % len(codes)]
        self.world.request(Upgrade(self.world.upgrades[code].node.name, code))
        return True

    def _fix_epoch(self, fault: Fault) -> bool:
        self.world.request(FixEpoch())
        self.world.at(fault.length_ms, self._release_epoch)
        return True

    def _release_epoch(self) -> None:
        if self._controllers():
            for replace in self.world.controller.journal.replaces:
                if not replace.operator:
                    self.world.request(ReleaseEpoch(replace.number))

    def _drain(self, fault: Fault) -> bool:
        if self._controllers():
            self.world.request(StopFlow("drain"))
        return bool(self._controllers())


def _operators(node: SimNode) -> list[PartitionId]:
    assert isinstance(node.machine, Worker)
    return [p for p, partition in node.machine.partitions.items() if isinstance(partition, OperatorPartition)]


def _replacing(node: SimNode) -> bool:
    assert isinstance(node.machine, Worker)
    return any(p.entry.role != "live" for p in node.machine.partitions.values())
