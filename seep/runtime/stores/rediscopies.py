"""The checkpoints of one partition in Redis: their bytes in portions, and a hash that says which of them count.

The bytes are written first, under a name of their own; then one guarded change makes them a checkpoint. What a killed
process had begun is named in a set before its first byte, so that it is found and deleted later.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgpack
from redis.exceptions import WatchError

from seep.model.ids import PartitionId
from seep.protocol.effects import DropCheckpoints
from seep.runtime.stores.base import newest_chain
from seep.runtime.stores.checkpoints import outgrown
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError, ForeignError
from seep.state.ipc import Bytes
from seep.state.saved import Saved, encode_checkpoint, fold_saved

PORTION_BYTES = 1 << 20
Found = TypeVar("Found", Checkpoint, Saved)


class Change(Protocol):
    def __call__(
        self, queue: Callable[[Any], None], watched: str = "", holds: Callable[[Any], bool] | None = None
    ) -> str:
        """Make the changes that ``queue`` queues, if this generation may, and if what is ``watched`` still ``holds``;
        answers why not."""


class Place(NamedTuple):
    """Where the bytes of one version lie."""

    name: str
    size: int
    damaged: bool = False


class RedisCheckpoints:
    def __init__(self, client: Any, prefix: str, partition: PartitionId, key: bytes) -> None:
        self.damaged = 0
        self._client = client
        self._partition = partition
        self._key = key
        self._list = f"{prefix}checkpoints:{partition}"
        self._begun = f"{prefix}begun:{partition}"
        self._bytes = f"{prefix}bytes:{partition}:"
        self._growing: list[tuple[int, int]] = []
        """The chain that checkpoints add to: (version, bytes)."""

    # --- reading -------------------------------------------------------------------------------------------------

    def places(self) -> dict[int, Place]:
        found = self._client.hgetall(self._list)
        return {int(version): Place(*msgpack.unpackb(data)) for version, data in found.items()}

    def _is_still(self, version: int, place: Place | None, looking: Any) -> bool:
        data = looking.hget(self._list, str(version))
        return (None if data is None else Place(*msgpack.unpackb(data))) == place

    def versions(self) -> dict[int, Place]:
        return {version: place for version, place in self.places().items() if not place.damaged}

    def ever(self) -> bool:
        return bool(self._client.exists(self._list))

    def chain(self, upto: int, use: Callable[[Saved], Found]) -> list[Found]:
        """The newest chain (none newer than `upto`) of which every part is fit for this use."""
        places = self.versions()
        return newest_chain(places, lambda version: self._read(version, places[version], use), upto)

    def _read(self, version: int, place: Place, use: Callable[[Saved], Found]) -> Found | None:
        try:
            saved = Saved(place.size, partial(self._portion, place.name), self._key)
            if (saved.front.partition, saved.version) != (self._partition, version):
                raise DamagedError(f"version {version} holds {saved.front.partition} version {saved.version}")
            return use(saved)
        except DamagedError as error:
            # A foreign one stays: the key or the program may be the wrong one, not the bytes.
            aside = not isinstance(error, ForeignError)
            self.damaged += self._set_aside(version, place) if aside else 1
            return None

    def _set_aside(self, version: int, place: Place) -> int:
        """Mark it as damaged, unless it was dropped or folded meanwhile; how many were marked."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.watch(self._list)
            if not self._is_still(version, place, pipe):
                return 0
            pipe.multi()
            pipe.hset(self._list, str(version), msgpack.packb(place._replace(damaged=True)))
            try:
                pipe.execute()
            except WatchError:
                return 0  # whoever reads it next will see
        return 1

    def _portion(self, name: str, offset: int, size: int) -> Bytes:
        first, last = offset // PORTION_BYTES, (offset + size - 1) // PORTION_BYTES
        if size <= 0:
            return b""
        found = self._client.hmget(self._bytes + name, [str(number) for number in range(first, last + 1)])
        whole = b"".join(portion or b"" for portion in found)
        return whole[offset - first * PORTION_BYTES :][:size]

    # --- writing -------------------------------------------------------------------------------------------------

    def put(self, checkpoint: Checkpoint, change: Change) -> tuple[str, int | None]:
        """Why it was refused (empty: it was not), and the version that its chain starts from."""
        place = self._write(checkpoint.version, encode_checkpoint(checkpoint, self._key))
        before = self.places().get(checkpoint.version)
        refusal = self._enter(checkpoint.version, place, before, change)
        return refusal, None if refusal else self._grow(checkpoint, place.size)

    def _write(self, version: int, parts: Iterable[Bytes]) -> Place:
        name, size = f"{version}:{secrets.token_hex(8)}", 0
        self._client.sadd(self._begun, name)
        for number, portion in enumerate(_portions(parts)):
            self._client.hset(self._bytes + name, str(number), portion)
            size += len(portion)
        return Place(name, size)

    def _enter(self, version: int, place: Place, before: Place | None, change: Change) -> str:
        def queue(pipe: Any) -> None:
            pipe.hset(self._list, str(version), msgpack.packb(place))
            pipe.srem(self._begun, place.name)
            if before is not None:
                pipe.unlink(self._bytes + before.name)

        # What was dropped meanwhile must not come back.
        refusal = change(queue, self._list, partial(self._is_still, version, before))
        if refusal:
            self._client.unlink(self._bytes + place.name)
            self._client.srem(self._begun, place.name)
        return refusal

    def _grow(self, checkpoint: Checkpoint, size: int) -> int:
        chain = self._growing
        if not checkpoint.parent:
            chain = []
        elif not chain or chain[-1][0] != checkpoint.parent:
            # Put by a process before us.
            places = self.versions()
            points = self.chain(checkpoint.parent, lambda saved: saved)
            chain = [(point.version, places[point.version].size) for point in points]
        self._growing = [*chain, (checkpoint.version, size)]
        return self._growing[0][0]

    def fold(self, change: Change) -> None:
        """Make a chain that has grown long into one full checkpoint."""
        chain = self._growing
        if not outgrown(chain):
            return
        version = chain[-1][0]
        before = self.versions().get(version)
        saved = self.chain(version, lambda one: one)
        if before is None or not saved or saved[-1].version != version:
            return
        try:
            place = self._write(version, fold_saved(saved, self._key))
        except DamagedError:
            return  # set aside by whoever needs it; what was begun goes with the next drop
        if not self._enter(version, place, before, change):
            self._growing = [(v, place.size if v == version else size) for v, size in self._growing if v >= version]

    def drop(self, effect: DropCheckpoints, change: Change) -> None:
        oldest = min((effect.below, *effect.keep))
        gone = {
            version: place
            for version, place in self.places().items()
            # What was damaged stays as long as anything that is older, for whoever looks into it.
            if (version < oldest if place.damaged else version < effect.below and version not in effect.keep)
        }
        begun = [name.decode() for name in self._client.smembers(self._begun)]
        left = [name for name in begun if int(name.partition(":")[0]) < effect.below]
        if not gone and not left:
            return

        def queue(pipe: Any) -> None:
            if gone:
                pipe.hdel(self._list, *map(str, gone))
            for name in (*(place.name for place in gone.values()), *left):
                pipe.unlink(self._bytes + name)
            if left:
                pipe.srem(self._begun, *left)

        change(queue)


def _portions(parts: Iterable[Bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of one size; only the last may be shorter."""
    held = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            size = PORTION_BYTES - len(held)
            held += view[:size]
            view = view[size:]
            if len(held) == PORTION_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)
