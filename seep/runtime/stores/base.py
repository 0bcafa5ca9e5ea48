"""What a store is to the host that performs store effects, and the chain of checkpoints every store answers with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

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

StoreEffect = (
    FenceStore
    | PutCheckpoint
    | LoadCheckpoints
    | NewestVersion
    | FindCheckpoint
    | DropCheckpoints
    | Append
    | ReadLog
    | Truncate
    | SwapJournal
    | ReadJournal
)

FENCED = "fenced"
EXISTS = "exists"
FAILED = "failed"
DAMAGED = "damaged"
LOST = "lost"


class Store(Protocol):
    def perform(self, effect: StoreEffect) -> StoreReply | None:
        """Do it, now, and answer (None for effects without an answer). Never raises for what the world does wrong:
        the answer's `error` is then ``fenced``, ``exists``, ``failed`` or ``damaged``, its `value` may say more."""

    def fold(self, partition: PartitionId, generation: Generation) -> None:
        """Make what was put of this partition shorter to read, if that is worth it. May take long, and may run beside
        everything else; a put tells afterwards where its chain starts."""

    def note(self, partition: PartitionId, generation: Generation, value: Any) -> None:
        """Keep this plain value in place of the last one of this generation, so that it outlives this process.
        Nothing is decided and nothing synced: it must be fast. Raises OSError."""

    def noted(self, partition: PartitionId, generation: Generation) -> Any:
        """What this generation noted last; None: nothing. Those of earlier ones may be forgotten. Raises OSError."""

    def statistics(self) -> Mapping[str, int]: ...


class Tail(Protocol):
    """A partition's log as an onlooker follows it."""

    @property
    def place(self) -> Any:
        """How far it has come: a plain value, from which another one can go on."""

    def more(self) -> list[tuple[int, Any]]:
        """(epoch, record) since the last call."""


class Link(Protocol):
    """One version of a partition's checkpoints: the whole, or its header."""

    @property
    def version(self) -> int: ...

    @property
    def parent(self) -> int: ...


Part = TypeVar("Part", bound=Link)


def newest_chain(versions: Iterable[int], read: Callable[[int], Part | None], upto: int) -> list[Part]:
    """The newest restorable point (`upto`: none newer than that) as its chain, full one first; empty: there is none.

    Reads no more than it must: a version is asked for once, and None means that it is damaged.
    """
    known: dict[int, Part | None] = {}
    there = set(versions)

    def chain_to(version: int) -> list[Part] | None:
        chain: list[Part] = []
        while version:
            if version not in known:
                known[version] = read(version) if version in there else None
            if (part := known[version]) is None:
                return None
            chain.append(part)
            version = part.parent
        return chain[::-1]

    wanted = sorted((v for v in there if not upto or v <= upto), reverse=True)
    return next((chain for version in wanted if (chain := chain_to(version))), [])
