"""The store of the simulated world: the contract of `protocol.effects`, in memory, and as nasty as a real one.

It keeps the whole history of every log, so that checkers see what was ever committed, also after truncation.
"""

from __future__ import annotations

from typing import Any

from seep.model.ids import FOREVER, Generation, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    Effect,
    FenceStore,
    FindCheckpoint,
    LoadCheckpoints,
    PutCheckpoint,
    ReadJournal,
    ReadLog,
    StoreReply,
    SwapJournal,
    Truncate,
)
from seep.protocol.journal import Journal
from seep.state.checkpoint import Checkpoint

NOBODY = Generation(-1, -1)


class SimStore:
    def __init__(self) -> None:
        self.fences: dict[PartitionId, Generation] = {}
        self.checkpoints: dict[PartitionId, dict[int, Checkpoint]] = {}
        self.damaged: set[tuple[PartitionId, int]] = set()
        self.logs: dict[PartitionId, list[tuple[int, Any]]] = {}
        self.history: dict[PartitionId, list[tuple[int, Any]]] = {}
        self.journal: Journal | None = None
        self.journals: list[Journal] = []
        self.refused = 0

    def perform(self, effect: Effect) -> StoreReply | None:
        match effect:
            case FenceStore():
                if effect.generation < self.fences.get(effect.partition, NOBODY):
                    return self._fenced(effect.token)
                self.fences[effect.partition] = effect.generation
                return StoreReply(effect.token)
            case PutCheckpoint():
                value = effect.checkpoint
                if self._refuses(value.partition, value.generation):
                    return self._fenced(effect.token)
                self.checkpoints.setdefault(value.partition, {})[value.version] = value
                self.damaged.discard((value.partition, value.version))
                return StoreReply(effect.token)
            case LoadCheckpoints():
                return self._load(effect)
            case FindCheckpoint():
                chains = self._chains(effect.partition, 0)
                return StoreReply(effect.token, (chains[0][-1].version, chains[0][-1].epoch) if chains else None)
            case DropCheckpoints():
                if not self._refuses(effect.partition, effect.generation):
                    self._drop(effect)
                return None
            case Append():
                return self._append(effect)
            case ReadLog():
                return StoreReply(effect.token, list(self.logs.get(effect.partition, ())))
            case Truncate():
                if not self._refuses(effect.partition, effect.generation):
                    log = self.logs.get(effect.partition, [])
                    last = log[-1:]
                    self.logs[effect.partition] = [r for r in log if r[0] >= effect.below] or last
                return None
            case SwapJournal():
                if (self.journal.version if self.journal else 0) == effect.expected:
                    self.journal = effect.journal
                    self.journals.append(effect.journal)
                return StoreReply(effect.token, self.journal)
            case ReadJournal():
                return StoreReply(effect.token, self.journal)
        raise AssertionError(f"not a store effect: {effect}")

    def _refuses(self, partition: PartitionId, generation: Generation) -> bool:
        return generation < self.fences.get(partition, NOBODY)

    def _fenced(self, token: int) -> StoreReply:
        self.refused += 1
        return StoreReply(token, error="fenced")

    def _append(self, effect: Append) -> StoreReply:
        if self._refuses(effect.partition, effect.generation):
            return self._fenced(effect.token)
        log = self.logs.setdefault(effect.partition, [])
        if log and log[-1][0] >= effect.epoch:
            return StoreReply(effect.token, error="exists")
        log.append((effect.epoch, effect.record))
        self.history.setdefault(effect.partition, []).append((effect.epoch, effect.record))
        return StoreReply(effect.token)

    def _load(self, effect: LoadCheckpoints) -> StoreReply:
        chains = self._chains(effect.partition, effect.upto)
        if not chains and self.checkpoints.get(effect.partition):
            return StoreReply(effect.token, error="damaged")
        return StoreReply(effect.token, chains)

    def _chains(self, partition: PartitionId, upto: int) -> list[list[Checkpoint]]:
        """Restorable points, newest first, each with the chain it builds on."""
        found = self.checkpoints.get(partition, {})
        chains: list[list[Checkpoint]] = []
        for version in sorted(found, reverse=True):
            if upto and version > upto:
                continue
            chain: list[Checkpoint] = []
            at = version
            while at and at in found and (partition, at) not in self.damaged:
                chain.append(found[at])
                at = found[at].parent
            if not at and chain:
                chains.append(chain[::-1])
        return chains[:2]

    def _drop(self, effect: DropCheckpoints) -> None:
        found = self.checkpoints.get(effect.partition, {})
        for version in [v for v in found if v < effect.below and v not in effect.keep]:
            del found[version]

    def damage(self, partition: PartitionId) -> bool:
        """Tear the newest checkpoint, if an older restorable one remains."""
        chains = self._chains(partition, 0)
        if len(chains) < 2:
            return False
        self.damaged.add((partition, chains[0][-1].version))
        return True


__all__ = ["FOREVER", "SimStore"]
