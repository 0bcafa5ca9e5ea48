"""Checkpoints in an object store (S3 and the like), over a store that has what those lack: a compare-and-set.

    PREFIX/PARTITION/VERSION-NAME            the bytes of a checkpoint, written once
    PREFIX/PARTITION/VERSION-NAME.damaged    a mark beside one that was found damaged

Which of them count says the catalogue of the partition: a log in the store below, of which the newest record holds the
whole list. A change appends the next record, so the fence and the number of the record decide, as with every log; what
was written and is not in the list is nothing, and is deleted later.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.fs

from seep.errors import Misuse
from seep.model.ids import Generation, PartitionId
from seep.protocol.effects import (
    Append,
    DropCheckpoints,
    FenceStore,
    FindCheckpoint,
    LoadCheckpoints,
    NewestVersion,
    PutCheckpoint,
    ReadLog,
    StoreReply,
    Truncate,
)
from seep.runtime.addresses import shown
from seep.runtime.stores.base import DAMAGED, EXISTS, FAILED, StoreEffect, newest_chain
from seep.runtime.stores.checkpoints import outgrown
from seep.runtime.stores.files import escape
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError, ForeignError
from seep.state.ipc import Bytes
from seep.state.saved import Saved, encode_checkpoint, fold_saved

TRIES = 50
"""Of a change that somebody else's changes get in the way of."""
_NAME = re.compile(r"((\d+)-[0-9a-f]+)(\.damaged)?")
Found = TypeVar("Found", Checkpoint, Saved)


class Place(NamedTuple):
    """Where the bytes of one version lie."""

    name: str
    size: int


Catalogue = dict[int, Place]


class RefusedError(Exception):
    """The store below does not let us change a catalogue; the word says why."""


class ObjectStore:
    """`below` keeps everything but the bytes of checkpoints."""

    def __init__(self, below: Any, url: str, key: bytes) -> None:
        self.below: Any = below
        self._key = key
        self._places, self._prefix = place_of(url)
        self._growing: dict[PartitionId, list[tuple[int, int]]] = {}
        """The chains that checkpoints add to: (version, bytes)."""
        self._swept: set[PartitionId] = set()
        self._damaged = 0

    def perform(self, effect: StoreEffect) -> StoreReply | None:
        token = getattr(effect, "token", None)
        try:
            return self._perform(effect)
        except RefusedError as error:
            problem, detail = str(error), ""
        except DamagedError as error:
            problem, detail = DAMAGED, str(error)
        except (OSError, pa.ArrowException) as error:
            problem, detail = FAILED, f"checkpoints: {error}"
        return None if token is None else StoreReply(token, detail, problem)

    def statistics(self) -> Mapping[str, int]:
        below: Mapping[str, int] = self.below.statistics()
        return {**below, "damaged_checkpoints": self._damaged}

    def tail(self, partition: PartitionId, place: Any = None) -> Any:
        """For an onlooker who follows a partition's log; `place`: from where another one stood."""
        return self.below.tail(partition, place)

    def note(self, partition: PartitionId, generation: Generation, value: Any) -> None:
        self.below.note(partition, generation, value)

    def noted(self, partition: PartitionId, generation: Generation) -> Any:
        return self.below.noted(partition, generation)

    def forget(self) -> None:
        """Delete everything under the prefix, and what the store below keeps elsewhere."""
        with contextlib.suppress(FileNotFoundError):
            self._places.delete_dir(self._prefix)
        if hasattr(self.below, "forget"):
            self.below.forget()

    def _perform(self, effect: StoreEffect) -> StoreReply | None:
        match effect:
            case FenceStore():
                reply: StoreReply | None = self.below.perform(effect)
                if reply is not None and not reply.error:
                    return self._below(FenceStore(effect.token, _listed(effect.partition), effect.generation))
                return reply
            case PutCheckpoint():
                return StoreReply(effect.token, self._put(effect.checkpoint))
            case LoadCheckpoints():
                catalogue = self._catalogue(effect.partition)[1]
                found = self._chain(effect.partition, catalogue, effect.upto, lambda one: one.load(effect.part))
                return StoreReply(effect.token, found, "" if found or not catalogue else DAMAGED)
            case NewestVersion():
                return StoreReply(effect.token, max(self._catalogue(effect.partition)[1], default=0))
            case FindCheckpoint():
                catalogue = self._catalogue(effect.partition)[1]
                chain = self._chain(effect.partition, catalogue, 0, Saved.check)
                return StoreReply(effect.token, (chain[-1].version, chain[-1].epoch) if chain else None)
            case DropCheckpoints():
                with contextlib.suppress(RefusedError):
                    self._drop(effect)
                return None
            case _:
                answer: StoreReply | None = self.below.perform(effect)
                return answer

    def _below(self, effect: StoreEffect) -> StoreReply:
        reply: StoreReply | None = self.below.perform(effect)
        assert reply is not None
        return reply

    # --- the catalogue -------------------------------------------------------------------------------------------

    def _catalogue(self, partition: PartitionId) -> tuple[int, Catalogue]:
        """The number of its newest record, and what that holds."""
        reply = self._below(ReadLog(0, _listed(partition)))
        if reply.error:
            raise RefusedError(reply.error)
        if not reply.value:
            return 0, {}
        number, record = reply.value[-1]
        return number, {int(version): Place(*place) for version, place in record.items()}

    def _change(
        self, partition: PartitionId, generation: Generation, change: Callable[[Catalogue], Catalogue | None]
    ) -> tuple[Catalogue, Catalogue]:
        """The catalogue before and after a change, made as this generation; None: there is nothing to change."""
        listed = _listed(partition)
        for _ in range(TRIES):
            number, before = self._catalogue(partition)
            after = change(dict(before))
            if after is None or after == before:
                return before, before
            record = {str(version): list(place) for version, place in after.items()}
            reply = self._below(Append(0, listed, generation, number + 1, record))
            if not reply.error:
                self.below.perform(Truncate(listed, generation, number + 1))
                return before, after
            if reply.error != EXISTS:
                raise RefusedError(reply.error)
        raise OSError(f"the catalogue of {partition} is changed by others again and again")

    # --- reading -------------------------------------------------------------------------------------------------

    def _home(self, partition: PartitionId) -> str:
        return f"{self._prefix}/{escape(partition.operator)}~{partition.number}"

    def _path(self, partition: PartitionId, name: str) -> str:
        return f"{self._home(partition)}/{name}"

    def _is_marked(self, partition: PartitionId, place: Place) -> bool:
        found = self._places.get_file_info(self._path(partition, f"{place.name}.damaged"))
        return bool(found.type != pa.fs.FileType.NotFound)

    def _chain(
        self, partition: PartitionId, catalogue: Catalogue, upto: int, use: Callable[[Saved], Found]
    ) -> list[Found]:
        """The newest chain (none newer than `upto`) of which every part is fit for this use."""
        with contextlib.ExitStack() as files:
            read = partial(self._read, partition, catalogue, use=use, files=files)
            return newest_chain(catalogue, read, upto)

    def _read(
        self,
        partition: PartitionId,
        catalogue: Catalogue,
        version: int,
        use: Callable[[Saved], Found],
        files: contextlib.ExitStack,
    ) -> Found | None:
        place = catalogue[version]
        path = self._path(partition, place.name)
        if self._is_marked(partition, place):
            return None
        try:
            file = files.enter_context(self._places.open_input_file(path))
        except FileNotFoundError:
            return None  # dropped meanwhile; one that is lost is missed by who finds no chain
        try:
            if file.size() != place.size:
                raise DamagedError(f"{path} has {file.size()} bytes, not {place.size}")
            saved = Saved(place.size, lambda offset, size: file.read_at(size, offset), self._key)
            if (saved.front.partition, saved.version) != (partition, version):
                raise DamagedError(f"{path} holds {saved.front.partition} version {saved.version}")
            return use(saved)
        except DamagedError as error:
            self._damaged += 1
            # A foreign one stays: the key or the program may be the wrong one, not the bytes.
            if not isinstance(error, ForeignError):
                self._write_object(f"{path}.damaged", [str(error).encode()])
            return None

    # --- writing -------------------------------------------------------------------------------------------------

    def _put(self, checkpoint: Checkpoint) -> int:
        """The version that its chain starts from."""
        partition, version = checkpoint.partition, checkpoint.version
        place = self._write(partition, version, encode_checkpoint(checkpoint, self._key))
        try:
            before, _ = self._change(partition, checkpoint.generation, lambda found: {**found, version: place})
        except RefusedError:
            self._delete(partition, place)
            raise
        if version in before:
            self._delete(partition, before[version])
        return self._grow(checkpoint, place.size, before)

    def _write(self, partition: PartitionId, version: int, parts: Iterable[Bytes]) -> Place:
        name = f"{version}-{secrets.token_hex(8)}"
        self._places.create_dir(self._home(partition), recursive=True)
        return Place(name, self._write_object(self._path(partition, name), parts))

    def _write_object(self, path: str, parts: Iterable[Bytes]) -> int:
        """Whole and durable when it returns; how many bytes."""
        with self._places.open_output_stream(path) as stream:
            for part in parts:
                stream.write(part)
            size: int = stream.tell()
        _sync(self._places, path)
        return size

    def _delete(self, partition: PartitionId, place: Place) -> None:
        for name in (place.name, f"{place.name}.damaged"):
            with contextlib.suppress(FileNotFoundError):
                self._places.delete_file(self._path(partition, name))

    def _grow(self, checkpoint: Checkpoint, size: int, known: Catalogue) -> int:
        partition = checkpoint.partition
        chain = self._growing.get(partition, [])
        if not checkpoint.parent:
            chain = []
        elif not chain or chain[-1][0] != checkpoint.parent:
            # Put by a process before us.
            points = self._chain(partition, known, checkpoint.parent, lambda saved: saved)
            chain = [(point.version, known[point.version].size) for point in points]
        self._growing[partition] = [*chain, (checkpoint.version, size)]
        return self._growing[partition][0][0]

    def fold(self, partition: PartitionId, generation: Generation) -> None:
        """Make a chain that has grown long into one full checkpoint."""
        chain = self._growing.get(partition, [])
        if outgrown(chain):
            with contextlib.suppress(OSError, RefusedError, DamagedError, pa.ArrowException):  # as long as before
                self._fold(partition, generation, chain[-1][0])

    def _fold(self, partition: PartitionId, generation: Generation, version: int) -> None:
        catalogue = self._catalogue(partition)[1]
        was = catalogue.get(version)
        with contextlib.ExitStack() as files:
            read = partial(self._read, partition, catalogue, use=lambda one: one, files=files)
            saved = newest_chain(catalogue, read, version)
            if was is None or not saved or saved[-1].version != version:
                return
            place = self._write(partition, version, fold_saved(saved, self._key))

        def change(found: Catalogue) -> Catalogue | None:
            # What was dropped meanwhile must not come back.
            return {**found, version: place} if found.get(version) == was else None

        try:
            after = self._change(partition, generation, change)[1]
        except RefusedError:
            after = {}
        if after.get(version) != place:
            self._delete(partition, place)
            return
        self._delete(partition, was)
        grown = self._growing[partition]
        self._growing[partition] = [(v, place.size if v == version else size) for v, size in grown if v >= version]

    def _drop(self, effect: DropCheckpoints) -> None:
        partition, oldest = effect.partition, min((effect.below, *effect.keep))

        def is_kept(version: int, place: Place) -> bool:
            if version >= effect.below or version in effect.keep:
                return True
            # What was damaged stays as long as anything that is older, for whoever looks into it.
            return version >= oldest and self._is_marked(partition, place)

        before, after = self._change(
            partition, effect.generation, lambda found: {v: place for v, place in found.items() if is_kept(v, place)}
        )
        for version in set(before) - set(after):
            self._delete(partition, before[version])
        if partition not in self._swept:
            self._swept.add(partition)
            self._sweep(partition, effect.below, {place.name for place in after.values()})

    def _sweep(self, partition: PartitionId, below: int, known: set[str]) -> None:
        """What killed processes had begun."""
        chosen = pa.fs.FileSelector(self._home(partition), allow_not_found=True)
        for found in self._places.get_file_info(chosen):
            name = _NAME.fullmatch(found.base_name)
            if name is not None and name[1] not in known and int(name[2]) < below:
                self._places.delete_file(found.path)


def _listed(partition: PartitionId) -> PartitionId:
    """Whose log is the catalogue."""
    return PartitionId(f"checkpoints of {partition.operator}", partition.number)


def _sync(places: Any, path: str) -> None:
    """A file system that is ours may still hold it in memory; the others answer when it is kept."""
    if places.type_name == "local":
        for target in (path, os.path.dirname(path)):
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def place_of(url: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        found, path = pa.fs.FileSystem.from_uri(url)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise Misuse(
            f"checkpoints={shown(url)!r}: {str(problem).replace(url, shown(url))}; such as s3://BUCKET/FOLDER or file:///FOLDER"
        ) from None
    return found, path.rstrip("/")


def check(url: str) -> None:
    """Refuse a place that cannot be written to."""
    places, path = place_of(url)
    try:
        places.create_dir(path, recursive=True)
        probe = f"{path}/.seep-{secrets.token_hex(4)}"
        with places.open_output_stream(probe) as stream:
            stream.write(b"seep")
        places.delete_file(probe)
    except (pa.ArrowException, OSError) as problem:
        said = " ".join(str(problem).split())
        raise Misuse(f"checkpoints={shown(url)!r} cannot be written to: {said}") from None
