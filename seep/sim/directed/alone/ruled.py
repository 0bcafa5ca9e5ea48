"""One controller, its store and its workers in the hands of a directed schedule."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from seep.control.controller import Controller
from seep.model.ids import PartitionId
from seep.model.settings import Settings
from seep.protocol.effects import (
    Effect,
    FenceStore,
    FindCheckpoint,
    ReadJournal,
    Send,
    StoreReply,
    SwapJournal,
)
from seep.protocol.journal import SHADOW, Journal
from seep.protocol.messages import Hello, Plan, Report, Status
from seep.sim.stage import chain

GRAPH = chain()
S0, A0, OUT = PartitionId("s", 0), PartitionId("a", 0), PartitionId("out", 0)
KNOBS: dict[str, Any] = {
    "epoch_ms": 5.0,
    "retry_ms": 25.0,
    "suspect_ms": 100.0,
    "at_most_ms": 3_000.0,
    "release_ms": 500.0,
    "spare_workers": 1,
}


class Bench:
    """A controller and its store."""

    def __init__(self, workers: int = 2, parts: int = 1, found: Journal | None = None, **more: Any) -> None:
        knobs = {name: more.pop(name) for name in list(more) if name in KNOBS}
        self.controller = Controller(GRAPH, Settings(**{**KNOBS, **knobs}), workers, parts, **more)
        self.stored = found
        self.now_ms = 0.0
        self.effects: list[Effect] = []
        self.holds = False
        """The store does not answer."""
        self.waiting: list[Any] = []

    def do(self, event: Any = None, now_ms: float | None = None) -> list[Effect]:
        """Hand it an event, or a tick; answers what it did but for the store's calls, which are answered."""
        self.now_ms = self.now_ms if now_ms is None else now_ms
        made = self.controller.tick(self.now_ms) if event is None else self.controller.handle(event, self.now_ms)
        left: list[Effect] = []
        while made:
            effect = made.pop(0)
            if isinstance(effect, ReadJournal | SwapJournal | FenceStore | FindCheckpoint):
                if self.holds:
                    self.waiting.append(effect)
                else:
                    made += self.controller.handle(self.reply(effect), self.now_ms)
            else:
                left.append(effect)
        return left

    def reply(self, effect: Any) -> StoreReply:
        if isinstance(effect, SwapJournal):
            if effect.expected == (self.stored.version if self.stored else 0):
                self.stored = effect.journal
            return StoreReply(effect.token, self.stored)
        return StoreReply(effect.token, self.stored if isinstance(effect, ReadJournal) else None)

    @property
    def journal(self) -> Journal:
        return self.controller.journal

    @property
    def said(self) -> list[str]:
        return [what for _, what in self.controller.decisions]

    def begin(self, *workers: str) -> Bench:
        """A flow that runs: a tick, its workers, and their reports."""
        self.do()
        for worker in workers or ("w1", "w2"):
            self.do(Hello(worker))
        self.report()
        return self

    def report(self, **of: dict[str, Any]) -> list[Effect]:
        """Of every worker, under this journal; of each partition what is named."""
        effects: list[Effect] = []
        for worker in sorted(self.controller.heard):
            statuses = []
            for entry in self.journal.entries.values():
                if entry.worker == worker:
                    plain = Status(entry.partition, entry.generation, self.journal.version, 100, accepted=True)
                    more = of.get(str(entry.partition).replace("/", ""), {})
                    statuses.append(with_fields(plain, **more))
            effects += self.do(Report(worker, self.journal.version, tuple(statuses), 0))
        return effects


def plans(effects: list[Effect]) -> dict[str, int]:
    """Who is told of which version."""
    return {
        one.to: one.message.journal.version
        for one in effects
        if isinstance(one, Send) and isinstance(one.message, Plan)
    }


def kept_by(bench: Bench) -> list[Any]:
    """The old one has what the new ones start from."""
    bench.report(a0={"fixed_version": 5, "fixed_epoch": 90})
    return [e for e in bench.journal.of("a") if e.role == SHADOW]


def alive(bench: Bench, now_ms: float) -> None:
    for worker in list(bench.controller.heard):
        bench.do(Hello(worker), now_ms=now_ms)
    bench.do()
