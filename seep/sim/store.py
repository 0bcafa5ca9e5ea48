"""The store of the simulated world: the contract of `protocol.effects`, in memory, and as nasty as a real one.

It keeps the whole history of every log, so that checkers see what was ever committed, also after truncation.

It may crash and lose what it had not yet answered for. What is lost is a suffix of the calls on one object (a
partition, or the journal), and never anything that an answer already given covers: a call that was answered, or that
comes before an answered one of the same object, was durable when the answer left. So nobody has ever seen what is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from seep.model.ids import EVERYTHING, FOREVER, Generation, KeyRange, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    Effect,
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
from seep.state.checkpoint import Checkpoint

NOBODY = Generation(-1, -1)
WRITES = (Append, PutCheckpoint, SwapJournal)
"""What takes room."""
Undo = Callable[[], None]
Changes = deque[tuple[float, Undo]]
"""(when it is answered, how it is undone), oldest first."""


class SimStore:
    def __init__(self) -> None:
        self.history: dict[PartitionId, list[tuple[int, Any]]] = {}
        self.order: list[tuple[PartitionId, int]] = []
        """Which epoch of which log was appended, one after the other."""
        self.journals: list[Journal] = []
        self.refused = 0
        """Writes of fenced generations that were turned away."""
        self.lost_writes = 0
        self.problems: list[str] = []
        """What the store itself found broken; see `seep.sim.checks`."""
        self.beyond: set[PartitionId] = set()
        """Found more of their checkpoints damaged than the promise covers: the flow may stop, loudly."""
        self.accepted: dict[PartitionId, Generation] = {}
        self.fallen: dict[PartitionId, tuple[int, int]] = {}
        """Of a partition that fell back past a damaged checkpoint: (the version it took, the newest there was)."""
        self.wipe()

    def wipe(self) -> None:
        """Come back with nothing, like a server without persistence."""
        self.fences: dict[PartitionId, Generation] = {}
        self.checkpoints: dict[PartitionId, dict[int, Checkpoint]] = {}
        self.damaged: dict[tuple[PartitionId, int], KeyRange] = {}
        """Checkpoints, and the buckets of which nothing in them can be read."""
        self.logs: dict[PartitionId, list[tuple[int, Any]]] = {}
        self.journal: Journal | None = None
        self.unanswered: dict[PartitionId | None, Changes] = {}

    def perform(self, effect: Effect, now_ms: float = 0.0, answered_ms: float = 0.0) -> StoreReply | None:
        """Do it. Until `answered_ms` it can still be lost in a crash."""
        undo: Undo | None = None
        parts: list[Undo | None] = []
        reply: StoreReply | None = None
        about: PartitionId | None = None
        match effect:
            case Append():
                about = effect.partition
                reply, appended = self._append(effect)
                parts += appended
            case PutCheckpoint():
                about = effect.checkpoint.partition
                reply, undo = self._put(effect)
            case FenceStore():
                about = effect.partition
                reply, undo = self._fence(effect)
            case LoadCheckpoints():
                about = effect.partition
                reply = self._load(effect)
            case NewestVersion():
                about = effect.partition
                reply = StoreReply(effect.token, max(self.checkpoints.get(about, ()), default=0))
            case FindCheckpoint():
                about = effect.partition
                chains = self.chains(about)
                self._weigh(about, chains)
                reply = StoreReply(effect.token, (chains[0][-1].version, chains[0][-1].epoch) if chains else None)
            case DropCheckpoints():
                about = effect.partition
                undo = self._drop(effect)
            case ReadLog():
                about = effect.partition
                reply = StoreReply(effect.token, list(self.logs.get(about, ())))
            case Truncate():
                about = effect.partition
                undo = self._truncate(effect)
            case SwapJournal():
                undo = self._swap(effect)
                reply = StoreReply(effect.token, self.journal)
            case ReadJournal():
                reply = StoreReply(effect.token, self.journal)
            case _:
                raise AssertionError(f"not a store effect: {effect}")
        if answered_ms > now_ms:
            for part in parts or [undo]:
                self._note(about, part, now_ms, answered_ms)
        return reply

    # --- losing the tail -----------------------------------------------------------------------------------------

    def _note(self, about: PartitionId | None, undo: Undo | None, now_ms: float, answered_ms: float) -> None:
        changes = self.unanswered.get(about)
        if changes is None:
            if undo is None:
                return
            changes = self.unanswered[about] = deque()
        self._settle(changes, now_ms)
        if undo is not None or changes:
            changes.append((answered_ms, undo or _nothing))

    @staticmethod
    def _settle(changes: Changes, now_ms: float) -> None:
        """What was answered is durable, and so is everything before it."""
        answered = max((i for i, (ms, _) in enumerate(changes) if ms <= now_ms), default=-1)
        for _ in range(answered + 1):
            changes.popleft()

    def may_lose(self, now_ms: float) -> bool:
        """Is there a write that nobody has had an answer about?"""
        for changes in self.unanswered.values():
            self._settle(changes, now_ms)
        return any(undo is not _nothing for changes in self.unanswered.values() for _, undo in changes)

    def lose_tail(self, now_ms: float, random: Random) -> None:
        """Crash: of what nobody has had an answer about, some of the latest is gone."""
        for changes in self.unanswered.values():
            self._settle(changes, now_ms)
            for _ in range(random.randint(0, len(changes))):
                _, undo = changes.pop()
                self.lost_writes += undo is not _nothing
                undo()
            changes.clear()

    # --- writes --------------------------------------------------------------------------------------------------

    def _refuses(self, partition: PartitionId, generation: Generation) -> bool:
        return generation < self.fences.get(partition, NOBODY)

    def _fenced(self, token: int) -> StoreReply:
        self.refused += 1
        return StoreReply(token, error="fenced")

    def _accept(self, partition: PartitionId, generation: Generation) -> None:
        """Seen apart from the fences: who writes only gets newer."""
        before = self.accepted.get(partition, NOBODY)
        if generation < before:
            self.problems.append(f"{partition}: a write of generation {generation} was accepted after one of {before}")
        self.accepted[partition] = generation

    def _fence(self, effect: FenceStore) -> tuple[StoreReply, Undo | None]:
        partition, before = effect.partition, self.fences.get(effect.partition, NOBODY)
        if effect.journal_version > (self.journal.version if self.journal else 0):
            return StoreReply(effect.token, error="lost"), None
        if effect.generation < before:
            return self._fenced(effect.token), None
        self.fences[partition] = effect.generation
        return StoreReply(effect.token), lambda: self.fences.__setitem__(partition, before)

    def _append(self, effect: Append) -> tuple[StoreReply, list[Undo]]:
        if self._refuses(effect.partition, effect.generation):
            return self._fenced(effect.token), []
        if effect.partition not in self.fences:
            return StoreReply(effect.token, error="lost"), []
        log = self.logs.setdefault(effect.partition, [])
        missing = effect.after(log[-1][0] if log else None)
        if not missing:
            return StoreReply(effect.token, error="exists"), []
        self._accept(effect.partition, effect.generation)
        history = self.history.setdefault(effect.partition, [])
        log += missing
        history += missing
        self.order += [(effect.partition, epoch) for epoch, _ in missing]

        def undo(epoch: int) -> None:
            log.pop()
            history.pop()
            self.order.remove((effect.partition, epoch))

        return StoreReply(effect.token), [partial(undo, epoch) for epoch, _ in missing]

    def _truncate(self, effect: Truncate) -> Undo | None:
        partition, log = effect.partition, self.logs.get(effect.partition)
        if log is None or self._refuses(partition, effect.generation):
            return None
        self.logs[partition] = [r for r in log if r[0] >= effect.below] or log[-1:]
        return lambda: self.logs.__setitem__(partition, log)

    def _swap(self, effect: SwapJournal) -> Undo | None:
        before = self.journal
        if (before.version if before else 0) != effect.expected:
            return None
        self.journal = effect.journal
        self.journals.append(effect.journal)

        def undo() -> None:
            self.journal = before
            self.journals.pop()

        return undo

    def _put(self, effect: PutCheckpoint) -> tuple[StoreReply, Undo | None]:
        value = effect.checkpoint
        partition, version = value.partition, value.version
        if self._refuses(partition, value.generation):
            return self._fenced(effect.token), None
        if partition not in self.fences:
            return StoreReply(effect.token, error="lost"), None
        self._accept(partition, value.generation)
        found = self.checkpoints.setdefault(partition, {})
        _, newest = self.fallen.get(partition, (0, 0))
        if newest in found and found[newest].generation == value.generation:
            del self.fallen[partition]  # it was read by somebody who is fenced; who wrote it goes on from it
        before, damaged = found.get(version), self.damaged.pop((partition, version), None)
        found[version] = value

        def undo() -> None:
            if before is None:
                del found[version]
            else:
                found[version] = before
            if damaged is not None:
                self.damaged[partition, version] = damaged

        return StoreReply(effect.token), undo

    def _drop(self, effect: DropCheckpoints) -> Undo | None:
        found = self.checkpoints.get(effect.partition)
        if not found or self._refuses(effect.partition, effect.generation):
            return None
        gone = {v: found[v] for v in found if v < effect.below and v not in effect.keep}
        for version in gone:
            del found[version]
        return (lambda: found.update(gone)) if gone else None

    # --- reads, and damage ---------------------------------------------------------------------------------------

    def _load(self, effect: LoadCheckpoints) -> StoreReply:
        partition = effect.partition
        chains = self.chains(partition, effect.upto, effect.part)
        if not effect.upto:
            self._restored(partition, chains)
        self._set_aside(partition, effect)
        if not chains and self.checkpoints.get(partition):
            return StoreReply(effect.token, error="damaged")
        chain = chains[0] if chains else []
        return StoreReply(effect.token, chain if effect.part is None else [self._part(c, effect.part) for c in chain])

    def _part(self, checkpoint: Checkpoint, part: KeyRange) -> Checkpoint:
        return checkpoint.part(part)

    def _set_aside(self, partition: PartitionId, effect: LoadCheckpoints) -> None:
        """What is found damaged by one is not there any more for the others, whichever part they need."""
        for (who, version), where in self.damaged.items():
            if who == partition and (not effect.upto or version <= effect.upto) and _meets(where, effect.part):
                self.damaged[who, version] = EVERYTHING

    def _weigh(self, partition: PartitionId, chains: list[list[Checkpoint]]) -> int:
        """The newest version that can be restored. The promise covers one damaged copy of the newest two points, until
        there are two good ones again."""
        trusted = {point.version for point in self.points(partition)}
        newest = chains[0][-1].version if chains else 0
        if trusted and newest not in trusted:
            self.beyond.add(partition)
        return newest

    def _restored(self, partition: PartitionId, chains: list[list[Checkpoint]]) -> None:
        newest, found = self._weigh(partition, chains), self.checkpoints.get(partition, {})
        if any(version > newest for version in found):
            self.fallen[partition] = (newest, max(found))

    def points(self, partition: PartitionId) -> list[Checkpoint]:
        """The newest two that the partition counts on, damaged or not, newest first. After it fell back past a damaged
        one: those written since, and the one it fell back to."""
        found, (restored, newest) = self.checkpoints.get(partition, {}), self.fallen.get(partition, (0, 0))
        versions = sorted((v for v in found if v > newest or v == restored), reverse=True)
        return [found[version] for version in versions[:2]]

    def chains(self, partition: PartitionId, upto: int = 0, part: KeyRange | None = None) -> list[list[Checkpoint]]:
        """The newest two points of which this part can be restored, newest first, each with the chain it builds on."""
        found = self.checkpoints.get(partition, {})
        versions = (v for v in sorted(found, reverse=True) if not upto or v <= upto)
        whole = (list(self._chain(partition, found, v, part)) for v in versions)
        chains = (chain[::-1] for chain in whole if chain and not chain[-1].parent)
        return [chain for chain, _ in zip(chains, range(2), strict=False)]

    def _chain(
        self, partition: PartitionId, found: dict[int, Checkpoint], version: int, part: KeyRange | None
    ) -> Iterator[Checkpoint]:
        """From this version down, as far as it can be read."""
        while version in found and not _meets(self.damaged.get((partition, version)), part):
            yield found[version]
            version = found[version].parent

    def may_damage(self, partition: PartitionId) -> bool:
        """Does it count on two points, and can both be restored?"""
        versions = [point.version for point in self.points(partition)]
        return len(versions) > 1 and versions == [chain[-1].version for chain in self.chains(partition)]

    def damage(self, partition: PartitionId, where: KeyRange = EVERYTHING) -> bool:
        """Flip a bit in the newest checkpoint, among what it holds of these buckets, if an older restorable one
        remains."""
        if not self.may_damage(partition):
            return False
        self._flip(partition, self.points(partition)[0].version, where)
        return True

    def _flip(self, partition: PartitionId, version: int, where: KeyRange) -> None:
        self.tear(partition, version, where)

    def tear(self, partition: PartitionId, version: int, where: KeyRange = EVERYTHING) -> None:
        """Of this one, nothing that it holds of these buckets can be read any more."""
        self.damaged[partition, version] = where


def _meets(damaged: KeyRange | None, part: KeyRange | None) -> bool:
    """Does one who needs this part (None: everything, and β) meet this damage?"""
    return damaged is not None and (part is None or damaged.overlaps(part))


def _nothing() -> None:
    """A read: nothing to undo."""


__all__ = ["FOREVER", "SimStore"]
