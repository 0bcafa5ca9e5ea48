"""A store in a dictionary: for one process, for tests. The same contract as every other store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from seep.model.ids import Generation, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    FenceStore,
    FindCheckpoint,
    LoadCheckpoints,
    NewestVersion,
    PutCheckpoint,
    ReadJournal,
    ReadLog,
    StoreReply,
    SwapJournal,
    Truncate,
)
from seep.protocol.journal import Journal
from seep.runtime.stores.base import DAMAGED, EXISTS, FENCED, LOST, StoreEffect, newest_chain
from seep.state.checkpoint import Checkpoint


class MemoryStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fences: dict[PartitionId, Generation] = {}
        self._checkpoints: dict[PartitionId, dict[int, Checkpoint]] = {}
        self._logs: dict[PartitionId, list[tuple[int, Any]]] = {}
        self._journal: Journal | None = None
        self._notes: dict[tuple[PartitionId, Generation], Any] = {}

    def perform(self, effect: StoreEffect) -> StoreReply | None:
        with self._lock:
            return self._perform(effect)

    def fold(self, partition: PartitionId, generation: Generation) -> None:
        """Nothing to do: what is in memory is read as it is."""

    def note(self, partition: PartitionId, generation: Generation, value: Any) -> None:
        self._notes[partition, generation] = value

    def noted(self, partition: PartitionId, generation: Generation) -> Any:
        return self._notes.get((partition, generation))

    def statistics(self) -> Mapping[str, int]:
        return {"checkpoints": sum(len(c) for c in self._checkpoints.values())}

    def _fenced(self, partition: PartitionId, generation: Generation) -> bool:
        return generation < self._fences.get(partition, generation)

    def _perform(self, effect: StoreEffect) -> StoreReply | None:
        match effect:
            case FenceStore():
                if effect.journal_version > (self._journal.version if self._journal else 0):
                    return StoreReply(effect.token, error=LOST)
                known = self._fences.get(effect.partition, effect.generation)
                self._fences[effect.partition] = max(known, effect.generation)
                return StoreReply(effect.token, error=FENCED if effect.generation < known else "")
            case PutCheckpoint():
                checkpoint = effect.checkpoint
                if self._fenced(checkpoint.partition, checkpoint.generation):
                    return StoreReply(effect.token, error=FENCED)
                if checkpoint.partition not in self._fences:
                    return StoreReply(effect.token, error=LOST)
                self._checkpoints.setdefault(checkpoint.partition, {})[checkpoint.version] = checkpoint
                return StoreReply(effect.token)
            case LoadCheckpoints():
                saved = self._checkpoints.get(effect.partition, {})
                found = newest_chain(saved, saved.get, effect.upto)
                if effect.part is not None:
                    found = [checkpoint.part(effect.part) for checkpoint in found]
                return StoreReply(effect.token, found, DAMAGED if saved and not found else "")
            case NewestVersion():
                return StoreReply(effect.token, max(self._checkpoints.get(effect.partition, ()), default=0))
            case FindCheckpoint():
                saved = self._checkpoints.get(effect.partition, {})
                chain = newest_chain(saved, saved.get, 0)
                return StoreReply(effect.token, (chain[-1].version, chain[-1].epoch) if chain else None)
            case DropCheckpoints():
                if not self._fenced(effect.partition, effect.generation):
                    saved = self._checkpoints.get(effect.partition, {})
                    for version in [v for v in saved if v < effect.below and v not in effect.keep]:
                        del saved[version]
                return None
            case Append():
                return self._append(effect)
            case ReadLog():
                return StoreReply(effect.token, list(self._logs.get(effect.partition, [])))
            case Truncate():
                if not self._fenced(effect.partition, effect.generation):
                    log = self._logs.get(effect.partition, [])
                    self._logs[effect.partition] = [r for r in log if r[0] >= effect.below] or log[-1:]
                return None
            case SwapJournal():
                if (self._journal.version if self._journal else 0) == effect.expected:
                    self._journal = effect.journal
                return StoreReply(effect.token, self._journal)
            case ReadJournal():
                return StoreReply(effect.token, self._journal)

    def _append(self, effect: Append) -> StoreReply:
        if self._fenced(effect.partition, effect.generation):
            return StoreReply(effect.token, error=FENCED)
        if effect.partition not in self._fences:
            return StoreReply(effect.token, error=LOST)
        log = self._logs.setdefault(effect.partition, [])
        missing = effect.after(log[-1][0] if log else None)
        if not missing:
            return StoreReply(effect.token, error=EXISTS)
        log.extend(missing)
        return StoreReply(effect.token)
