"""One flow in several lives, without processes: each goes on from what the one before has left.

A life is a world with a store. It ends by a savepoint, from which the next one starts in a store of its own, or with
all its processes at once: then the next one has its store and its code. All that the lives have committed, in their
order, is what the flow has made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path
from random import Random
from typing import Any

import seep
from seep.control.requests import FixEpoch, ReleaseEpoch, ScaleTo, StopFlow
from seep.control.requests import Upgrade as UpgradeTo
from seep.errors import error_of
from seep.flow.check import kept, prepared, runnable
from seep.flow.fitting import fitting_of
from seep.flow.layout import layout_of
from seep.flow.outlet import result_table
from seep.partition.contract import Graph, Upgrade
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.protocol.journal import LIVE, Replace
from seep.running.audit import audit_of
from seep.running.matching import UNCHANGED, Asked
from seep.running.result import records_of
from seep.running.savepoint import Savepoint, at_hand, source_positions, whole
from seep.sim.store import SimStore
from seep.sim.world import START_WALL_MS, World

LIMIT_MS = 20_000.0
HEADROOM_EPOCHS = 1_000
KEY = b"k" * 32


@dataclass
class Lives:
    """``home``: where savepoints and what is received are kept."""

    home: Path
    epoch_rows: int = 0
    """At most, in an epoch of a source that does not say it itself."""
    done: list[tuple[Graph, dict[str, list[tuple[int, Any]]]]] = field(default_factory=list)
    """Of each life that is over, by sink: what counts of it."""
    wall_ms: float = START_WALL_MS
    on_look: Callable[[], bool] | None = None
    """Something outside, tried again and again until it is done."""
    lived: int = 0
    count: int = 0

    # --- how a life begins ---------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True)

    def begin(self, flow: seep.Flow, saved: Savepoint | None = None, asked: Asked = UNCHANGED) -> None:
        graph = kept(prepared(runnable(flow)), self.home / "received")
        few = {"epoch_rows": self.epoch_rows, "first_epoch_rows": self.epoch_rows} if self.epoch_rows else {}
        self.settings = with_fields(flow.settings, spare_workers=1, **few)
        self.flow, self.store, self.upgrades = flow.name, SimStore(), dict[str, Upgrade]()
        self.upgraded: Graph | None = None
        if saved is not None:
            saved.prepare(graph, self.store, saved.match(graph, asked))
            self.wall_ms = max(self.wall_ms, saved.now_ms)
        self._live(graph)

    def _live(self, graph: Graph) -> None:
        began_ms = self.wall_ms
        self.world = World(
            graph, self.settings, Random(7), 2, store=self.store, wall_ms=lambda: int(began_ms + self.world.now_ms)
        )
        self.world.upgrades = self.upgrades
        self.lived += 1
        self.world.spawned = 100 * self.lived  # no worker has the name of one before it

    # --- what happens in it --------------------------------------------------------------------------------------

    def until(self, done: Callable[[], Any], what: str) -> None:
        journal = self.world.controller.journal

        def over() -> bool:
            nonlocal journal
            if self.on_look is not None and self.on_look():
                self.on_look = None
            journal = self.world.controller.journal
            return bool(done()) or journal.stopping not in ("", "drain", "stop")

        assert self.world.run_until(over, self.world.now_ms + LIMIT_MS), f"it did not come: {what}"
        if journal.stopping not in ("", "drain", "stop"):
            raise error_of(journal.stopping)

    def advance(self, epochs: int) -> None:
        """All that has not ended is so many epochs further."""
        goal = self._slowest() + epochs
        self.until(lambda: self._slowest() >= goal or self.world.controller.finished, f"epoch {goal}")

    def _slowest(self) -> int:
        graph, statuses = self.world.graph, self.world.controller.statuses
        journal = self.world.controller.journal
        live = [statuses.get(p) for p, e in journal.entries.items() if e.role == LIVE]
        kinds = graph.nodes
        if not live or not all(live):
            return -1
        return min(
            (s.epoch for s in live if s and kinds[s.partition.operator].kind == "operator" and not s.ended), default=-1
        )

    def read(self, source: str) -> int:
        """Rows that have been read of a source since the beginning."""
        found = 0
        for node in self.world.live_workers():
            assert isinstance(node.machine, Worker)
            for partition in node.machine.partitions.values():
                if isinstance(partition, SourcePartition) and partition.node.name == source:
                    found += sum(known[5].get("read", 0) for known in partition.splits.known.values())
        return found

    def scale(self, operator: str, count: int) -> None:
        self.world.request(ScaleTo(operator, count))

        def done() -> bool:
            journal = self.world.controller.journal
            return len(journal.live(operator)) == count and not journal.replaces

        self.until(done, f"{operator}={count}")

    def upgrade(self, flow: seep.Flow, operator: str) -> None:
        new, old = runnable(flow).nodes[operator], self.world.graph.nodes[operator]
        fitting = fitting_of(new, operator, layout_of(old), frozenset())
        fitting.check()
        self.upgrades["new"] = Upgrade(new, fitting.fit)
        self.world.request(UpgradeTo(operator, "new"))
        self.until(lambda: operator in self.world.controller.journal.codes, f"upgrade of {operator}")
        nodes = {**self.world.graph.nodes, operator: with_fields(old, make=new.make, settings=new.settings)}
        self.upgraded = with_fields(self.world.graph, nodes=nodes)

    def kill(self, operator: str) -> None:
        self.world.crash(self.world.controller.journal.live(operator)[0].worker)

    def drain(self) -> None:
        self.world.request(StopFlow("drain"))

    # --- how it ends ---------------------------------------------------------------------------------------------

    def save(self, shown: bool = False) -> Savepoint:
        """The life ends where the savepoint is: what it does after that does not count. `shown`: it does nothing after
        that, and what it has committed is visible outside."""
        world, controller = self.world, self.world.controller
        wanted = self.fixed()
        saves = [whole(world.store, p, controller.statuses[p].fixed_version) for p in wanted.old]
        sources = [name for name, node in world.graph.nodes.items() if node.kind == "source"]
        positions = {n: source_positions(world.store, controller.journal, n, wanted.at) for n in sources}
        audit = audit_of(world.graph, controller.journal, world.store, wanted.at, saves, positions)
        assert (audit["problems"], audit["balanced"]) == ([], True), audit
        highest = max(s.epoch for s in controller.statuses.values()) + HEADROOM_EPOCHS
        self.count += 1
        path = self.home / f"v{self.count}"
        graph = self.upgraded or world.graph
        if shown:
            statuses, sinks = controller.statuses, [name for name, n in graph.nodes.items() if n.kind == "sink"]
            self.until(
                lambda: all(statuses[p].shown >= wanted.at for p in statuses if p.operator in sinks), "all to be shown"
            )
        saved = Savepoint.write(path, KEY, self.flow, wanted.at, highest, at_hand(saves), positions, graph)
        world.request(ReleaseEpoch(wanted.number))
        if not shown:
            self.advance(3)  # which the next life does not know of
        self._over(wanted.at)
        return saved

    def fixed(self) -> Replace:
        world, controller = self.world, self.world.controller
        world.request(FixEpoch())

        def ready() -> Replace | None:
            found = [r for r in controller.journal.replaces if not r.operator]
            for one in found:
                old = [controller.statuses.get(p) for p in one.old]
                others = [
                    controller.statuses.get(p)
                    for p, e in controller.journal.entries.items()
                    if p not in one.old and e.role == LIVE
                ]
                if all(s and s.fixed_version and s.fixed_epoch == one.at for s in old) and all(
                    s and s.fixed_epoch == one.at and (s.epoch >= one.at or s.ended) for s in others
                ):
                    return one
            return None

        self.until(ready, "a checkpoint of one epoch")
        found = ready()
        assert found is not None
        return found

    def _over(self, upto: int) -> None:
        self.wall_ms += self.world.now_ms
        graph, journal = self.world.graph, self.world.controller.journal
        sinks = [name for name, node in graph.nodes.items() if node.kind == "sink"]
        made = {n: [r for r in records_of(n, journal, self.store.perform) if r[0] <= upto] for n in sinks}
        self.done.append((graph, made))
        self._let_go()

    def _let_go(self) -> None:
        """Nobody of this life runs any more."""
        for node in self.world.live_workers():
            assert isinstance(node.machine, Worker)
            for partition in node.machine.partitions.values():
                close = getattr(getattr(partition, "intake", None), "close", None)
                if close is not None:
                    with suppress(OSError):
                        close()

    def resume(self) -> None:
        """All processes are killed, and the job goes on from its own store."""
        self.wall_ms += self.world.now_ms
        self._let_go()
        self._live(self.world.graph)

    def end(self) -> dict[str, list[dict[str, Any]]]:
        """To the end of the input; by sink, the rows of all lives."""
        self.until(lambda: self.world.controller.finished, "the end")
        self._over(2**62)
        rows: dict[str, list[dict[str, Any]]] = {}
        for graph, made in self.done:
            for name, records in made.items():
                settings = {**(graph.nodes[name].settings or {}), "table_keys": None}
                rows.setdefault(name, []).extend(result_table(settings, records).to_pylist())
        return rows
