"""Copies of checkpoints in the memory of upstream workers: who holds them, and who sees to it that somebody does.

Durable means in the store; a copy only makes a restore faster, and heals one whose newest version in the store is
damaged. So nothing here has to arrive: a holder that lacks a version reads it from the store, one that has no room says
so, and one that is gone is replaced by another as soon as the journal says so.
"""

from __future__ import annotations

import zlib

from seep.model.ids import NOWHERE, Generation, PartitionId
from seep.partition.contract import Graph
from seep.partition.desk import Desk
from seep.protocol.effects import LoadCheckpoints, StoreReply
from seep.protocol.journal import Entry
from seep.protocol.messages import Backup, Fetch, Held, Holding
from seep.state.checkpoint import Checkpoint

CHAIN_MAXIMUM = 16
"""A longer chain is read again from the store, which folds long ones."""
SENT_BYTES_MAXIMUM = 2 << 20
"""A larger full checkpoint is not sent; its holder reads it from the store. Where so much changes from one checkpoint
to the next, no copy is held: it would cost more than it saves."""
HELD_BYTES_MAXIMUM = 8 << 20
"""Nor of a larger full checkpoint."""


def upstream_workers(desk: Desk, graph: Graph, operator: str) -> list[str]:
    """The other workers that run a partition which sends to this operator."""
    entries = (entry for edge in graph.inputs(operator) for entry in desk.journal.of(edge.source))
    return sorted({entry.worker for entry in entries} - {desk.worker, ""})


def size_bytes(checkpoint: Checkpoint) -> int:
    held = 0 if checkpoint.state is None else checkpoint.state.size_bytes
    return held + sum(
        batch.size_bytes for entries in checkpoint.buffers.values() for entry in entries for batch in entry.batches
    )


class Protection:
    """The owner's side: one upstream worker, chosen by hash, has the newest durable version."""

    def __init__(self, desk: Desk, graph: Graph, me: Entry) -> None:
        self.desk = desk
        self.graph = graph
        self.me = me
        self.version = 0
        """The newest durable one."""
        self.holder = ""
        self.held = 0
        """The newest version the holder has said that it has."""
        self.refused = 0
        self.too_large = False
        self.asked_ms = 0.0
        self.bare_since_ms: float | None = None
        self.bare_ms = 0.0

    def durable(self, checkpoint: Checkpoint, state_bytes: int) -> None:
        """`state_bytes`: about how large the whole state is, of which this may be a small increment. Were it more than
        a holder has room for, the holder would read all of it to find that out."""
        if not self.desk.settings.copies_bytes:
            return
        self.version = checkpoint.version
        self._choose()
        small = size_bytes(checkpoint) <= SENT_BYTES_MAXIMUM
        self.too_large = not small and (bool(checkpoint.parent) or size_bytes(checkpoint) > HELD_BYTES_MAXIMUM)
        self.too_large |= state_bytes > self.desk.settings.copies_bytes
        if self.too_large:
            self.held = 0
            self._count()
        else:
            self._ask(checkpoint if small else None)

    def adopt(self) -> None:
        """Its holder may be gone: protect again at once."""
        if self.version and self._choose() and not self.too_large:
            self._ask(None)

    def tick(self) -> None:
        waits = self.version > max(self.held, self.refused) and not self.too_large
        if waits and self.desk.now_ms - self.asked_ms >= self.desk.settings.retry_ms:
            self._choose()
            self._ask(None)

    def on_holding(self, message: Holding) -> None:
        if not message.held:
            self.refused = max(self.refused, message.version)
        elif message.version > self.held:
            self.held = message.version
            self._count()

    def statistics(self) -> dict[str, int]:
        return {"held_version": self.held, "unprotected_ms": self.unprotected_ms}

    @property
    def unprotected_ms(self) -> int:
        """For how long, in all, nobody held a copy of this partition's state."""
        since = 0.0 if self.bare_since_ms is None else self.desk.now_ms - self.bare_since_ms
        return round(self.bare_ms + since)

    def _choose(self) -> bool:
        """One that is not lost with us, if there is a choice; of those the worker with the highest hash: each partition
        has its own, and few change when one goes."""
        workers = upstream_workers(self.desk, self.graph, self.me.partition.operator)
        chosen = max(workers, key=self._fitness, default="")
        if chosen == self.holder:
            return False
        self.holder, self.held, self.refused = chosen, 0, 0
        self._count()
        return True

    def _fitness(self, worker: str) -> tuple[int, int, str]:
        apart = self.desk.place.apart(self.desk.places.get(worker, NOWHERE))
        return apart, zlib.crc32(f"{worker} {self.me.partition}".encode()), worker

    def _count(self) -> None:
        if self.held:
            self.bare_ms, self.bare_since_ms = self.unprotected_ms, None
        elif self.bare_since_ms is None:
            self.bare_since_ms = self.desk.now_ms

    def _ask(self, checkpoint: Checkpoint | None) -> None:
        self.asked_ms = self.desk.now_ms
        if self.bare_since_ms is None and not self.held:
            self.bare_since_ms = self.desk.now_ms
        if self.holder:
            message = Backup(self.me.partition, self.me.generation, self.version, self.desk.worker, checkpoint)
            self.desk.send(self.holder, message)


class Holder:
    """The holder's side: the newest chain of each partition that was given to this worker, within a budget."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.chains: dict[PartitionId, tuple[Checkpoint, ...]] = {}
        self.bytes: dict[PartitionId, int] = {}
        self.loading: dict[PartitionId, Backup] = {}

    def on_backup(self, message: Backup) -> None:
        if self._outdated(message):
            self.desk.count("dropped_fenced")
            return
        chain = self.chains.get(message.partition, ())
        given = message.checkpoint
        if chain and chain[-1].version >= message.version:
            self._answer(message, True)
        elif given is not None and not given.parent:
            self._keep(message, (given,))
        elif given is not None and chain and chain[-1].version == given.parent and len(chain) < CHAIN_MAXIMUM:
            self._keep(message, (*chain, given))
        elif message.partition not in self.loading:
            self._load(message)

    def _outdated(self, message: Backup) -> bool:
        """Does our journal know its sender as gone, or as somebody later? (It may not know it yet.)"""
        journal = self.desk.journal
        entry = journal.entries.get(message.partition)
        if entry is not None:
            return message.generation < entry.generation
        return message.generation < Generation(journal.term, journal.next_generation)

    def on_fetch(self, message: Fetch) -> None:
        chain = self.chains.get(message.partition, ())
        if message.upto:
            upto = [checkpoint.version for checkpoint in chain if checkpoint.version <= message.upto]
            chain = chain[: len(upto)] if message.upto in upto else ()
        if message.part is not None:
            chain = tuple(checkpoint.part(message.part) for checkpoint in chain)
        self.desk.send(
            message.worker, Held(message.partition, message.asker, message.generation, self.desk.worker, chain)
        )

    def adopt(self) -> None:
        """Let go of what nobody can ask for any more."""
        entries = self.desk.journal.entries
        wanted = set(entries).union(partition for entry in entries.values() for partition, _ in entry.base)
        for partition in [p for p in self.chains if p not in wanted]:
            del self.chains[partition], self.bytes[partition]

    def _load(self, message: Backup) -> None:
        self.loading[message.partition] = message

        def loaded(reply: StoreReply) -> None:
            del self.loading[message.partition]
            chain: list[Checkpoint] = [] if reply.error else reply.value
            if chain and chain[-1].version == message.version and not self._outdated(message):
                self._keep(message, tuple(chain))
            # else the owner asks again, for that version or a newer one

        self.desk.call(self, lambda token: LoadCheckpoints(token, message.partition, message.version), loaded)

    def _keep(self, message: Backup, chain: tuple[Checkpoint, ...]) -> None:
        others = sum(size for partition, size in self.bytes.items() if partition != message.partition)
        mine = sum(map(size_bytes, chain))
        room = others + mine <= self.desk.settings.copies_bytes
        if room:
            self.chains[message.partition], self.bytes[message.partition] = chain, mine
        else:
            self.chains.pop(message.partition, None)
            self.bytes.pop(message.partition, None)
        self._answer(message, room)

    def _answer(self, message: Backup, held: bool) -> None:
        self.desk.send(message.worker, Holding(message.partition, message.generation, message.version, held))


__all__ = ["Holder", "Protection", "upstream_workers"]
