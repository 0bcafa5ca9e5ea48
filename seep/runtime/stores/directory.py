"""A store in a directory that several processes use at once.

    partitions/NAME~NUMBER/   lock  fence  log  VERSION.checkpoint  VERSION.checkpoint.damaged
    journal  journal.lock

Every decision (is it fenced, does it exist, is the version right) is made under the partition's file lock, so two
processes never decide by the same stale view. Large checkpoints are written beside their place without the lock;
only the rename happens under it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

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
from seep.protocol.wire import decode_journal, encode_journal
from seep.runtime.stores.base import DAMAGED, EXISTS, FAILED, FENCED, LOST, StoreEffect, newest_chain
from seep.runtime.stores.files import Files, escape, locked, read_or_none
from seep.runtime.stores.log import Log
from seep.state import plain
from seep.state.checkpoint import Checkpoint
from seep.state.codec import (
    FENCE,
    CheckpointHeader,
    DamagedError,
    ForeignError,
    decode_checkpoint,
    decode_header,
    decode_value,
    encode_checkpoint,
    encode_value,
)
from seep.state.folding import fold

_SUFFIX = ".checkpoint"
_UNSYNCED = Files(sync=False)
CHAIN_MINIMUM = 6
CHAIN_MAXIMUM = 60
"""A chain is folded when its increments outweigh half of its beginning, or when it is this long."""
Saved = TypeVar("Saved", Checkpoint, CheckpointHeader)


class DirectoryStore:
    def __init__(self, path: Path | str, key: bytes, fsync: bool = True) -> None:
        self._path = Path(path)
        self._key = key
        self._files = Files(fsync)
        self._logs: dict[PartitionId, Log] = {}
        self._growing: dict[PartitionId, list[tuple[int, int]]] = {}
        """The chain that each partition's checkpoints add to: (version, bytes)."""
        self._damaged = 0
        self._files.make_directory(self._path / "partitions")

    def perform(self, effect: StoreEffect) -> StoreReply | None:
        token = getattr(effect, "token", None)
        try:
            return self._perform(effect)
        except (DamagedError, plain.MisfitError) as error:
            problem, detail = DAMAGED, str(error)
        except OSError as error:
            problem, detail = FAILED, str(error)
        return None if token is None else StoreReply(token, detail, problem)

    def statistics(self) -> Mapping[str, int]:
        return {
            "damaged_checkpoints": self._damaged,
            "torn_tails": sum(log.torn_tails for log in list(self._logs.values())),
        }

    def _perform(self, effect: StoreEffect) -> StoreReply | None:
        match effect:
            case Append():
                return self._append(effect)
            case PutCheckpoint():
                return self._put(effect)
            case FenceStore():
                journal = self._journal() if effect.journal_version else None
                if effect.journal_version > (journal.version if journal else 0):
                    return StoreReply(effect.token, error=LOST)
                raised = self._raise_fence(effect.partition, effect.generation)
                return StoreReply(effect.token, error="" if raised else FENCED)
            case LoadCheckpoints():
                found = self._chain(effect.partition, effect.upto, decode_checkpoint)
                if not found and self._had_checkpoints(effect.partition):
                    return StoreReply(effect.token, error=DAMAGED)
                return StoreReply(effect.token, found)
            case NewestVersion():
                return StoreReply(effect.token, max(self._versions(effect.partition), default=0))
            case FindCheckpoint():
                chain = self._chain(effect.partition, 0, decode_header)
                return StoreReply(effect.token, (chain[-1].version, chain[-1].epoch) if chain else None)
            case DropCheckpoints():
                self._drop(effect)
                return None
            case ReadLog():
                with locked(self._home(effect.partition) / "lock"):
                    return StoreReply(effect.token, self._log(effect.partition).read())
            case Truncate():
                with locked(self._home(effect.partition) / "lock"):
                    if not self._fenced(effect.partition, effect.generation):
                        self._log(effect.partition).truncate(effect.below)
                return None
            case SwapJournal():
                return StoreReply(effect.token, self._swap(effect))
            case ReadJournal():
                return StoreReply(effect.token, self._journal())

    # --- partitions --------------------------------------------------------------------------------------------

    def _home(self, partition: PartitionId) -> Path:
        name = f"{escape(partition.operator)}~{partition.number}"
        return self._files.make_directory(self._path / "partitions" / name)

    def _log(self, partition: PartitionId) -> Log:
        if partition not in self._logs:
            self._logs[partition] = Log(self._home(partition) / "log", self._key, self._files)
        return self._logs[partition]

    def _fence(self, partition: PartitionId) -> Generation | None:
        data = read_or_none(self._home(partition) / "fence")
        return None if data is None else plain.unpack(Generation, decode_value(FENCE, data, self._key))

    def _fenced(self, partition: PartitionId, generation: Generation) -> bool:
        fence = self._fence(partition)
        return fence is not None and generation < fence

    def _raise_fence(self, partition: PartitionId, generation: Generation) -> bool:
        home = self._home(partition)
        with locked(home / "lock"):
            fence = self._fence(partition)
            if fence is None or fence < generation:
                # Not synced: whoever it keeps out dies with the machine, and the journal names the generation.
                _UNSYNCED.replace(home / "fence", [encode_value(FENCE, plain.pack(generation), self._key)])
            return fence is None or fence <= generation

    def _append(self, effect: Append) -> StoreReply:
        with locked(self._home(effect.partition) / "lock"):
            if self._fenced(effect.partition, effect.generation):
                return StoreReply(effect.token, error=FENCED)
            if self._fence(effect.partition) is None:
                return StoreReply(effect.token, error=LOST)
            log = self._log(effect.partition)
            last = log.last_epoch()
            if last is not None and effect.epoch <= last:
                return StoreReply(effect.token, error=EXISTS)
            log.append(effect.epoch, effect.record)
        return StoreReply(effect.token)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _put(self, effect: PutCheckpoint) -> StoreReply:
        checkpoint = effect.checkpoint
        home = self._home(checkpoint.partition)
        if self._fenced(checkpoint.partition, checkpoint.generation):
            return StoreReply(effect.token, error=FENCED)
        if self._fence(checkpoint.partition) is None:
            return StoreReply(effect.token, error=LOST)
        target = home / f"{checkpoint.version}{_SUFFIX}"
        neighbour = self._files.prepare(target, encode_checkpoint(checkpoint, self._key))
        with locked(home / "lock"):
            # Asked again: the fence may have been raised while the bytes were written.
            if self._fenced(checkpoint.partition, checkpoint.generation):
                neighbour.unlink()
                return StoreReply(effect.token, error=FENCED)
            self._files.commit(neighbour, target)
        return StoreReply(effect.token, self._fold(checkpoint, target.stat().st_size))

    def _fold(self, checkpoint: Checkpoint, size_bytes: int) -> int:
        """Make a chain that has grown long into one full checkpoint; the version its newest one now starts from."""
        partition, version = checkpoint.partition, checkpoint.version
        chain = self._growing.setdefault(partition, [])
        if not checkpoint.parent:
            chain.clear()
        elif not chain or chain[-1][0] != checkpoint.parent:
            # Put by a process before us: it knew the sizes, we ask the directory.
            points = self._chain(partition, checkpoint.parent, decode_header)
            paths = self._versions(partition)
            chain[:] = [(point.version, paths[point.version].stat().st_size) for point in points]
        chain.append((version, size_bytes))
        grown_bytes = sum(size for _, size in chain[1:])
        if len(chain) > CHAIN_MINIMUM and (grown_bytes > chain[0][1] / 2 or len(chain) > CHAIN_MAXIMUM):
            saved = self._chain(partition, version, decode_checkpoint)
            if saved and saved[-1].version == version:
                target = self._home(partition) / f"{version}{_SUFFIX}"
                neighbour = self._files.prepare(target, encode_checkpoint(fold(saved), self._key))
                with locked(self._home(partition) / "lock"):
                    if self._fenced(partition, checkpoint.generation):
                        neighbour.unlink()
                    else:
                        self._files.commit(neighbour, target)
                        chain[:] = [(version, target.stat().st_size)]
        return chain[0][0]

    def _versions(self, partition: PartitionId) -> dict[int, Path]:
        return {int(p.name.removesuffix(_SUFFIX)): p for p in self._home(partition).glob(f"*{_SUFFIX}")}

    def _had_checkpoints(self, partition: PartitionId) -> bool:
        # Not what a killed process was still writing beside its place: that never was a checkpoint.
        home = self._home(partition)
        return any(home.glob(f"*{_SUFFIX}")) or any(home.glob(f"*{_SUFFIX}.damaged"))

    def _chain(self, partition: PartitionId, upto: int, decode: Callable[[bytes, bytes], Saved]) -> list[Saved]:
        paths = self._versions(partition)
        return newest_chain(paths, lambda version: self._read(partition, version, paths[version], decode), upto)

    def _read(
        self, partition: PartitionId, version: int, path: Path, decode: Callable[[bytes, bytes], Saved]
    ) -> Saved | None:
        data = read_or_none(path)
        if data is None:
            return None
        try:
            saved = decode(data, self._key)
            if (saved.partition, saved.version) != (partition, version):
                raise DamagedError(f"{path.name} holds {saved.partition} version {saved.version}")
            return saved
        except DamagedError as error:
            self._damaged += 1
            # Kept for whoever looks into it, out of the way of every later restore. A foreign one stays in its
            # place: the key or the program may be the wrong one, not the bytes.
            if not isinstance(error, ForeignError):
                with contextlib.suppress(FileNotFoundError):
                    path.rename(path.with_name(f"{path.name}.damaged"))
            return None

    def _drop(self, effect: DropCheckpoints) -> None:
        with locked(self._home(effect.partition) / "lock"):
            if self._fenced(effect.partition, effect.generation):
                return
            for version, path in self._versions(effect.partition).items():
                if version < effect.below and version not in effect.keep:
                    path.unlink(missing_ok=True)
            # What was damaged stays as long as anything that is older, for whoever looks into it.
            oldest = min((effect.below, *effect.keep))
            for path in self._home(effect.partition).glob(f"*{_SUFFIX}.damaged"):
                if int(path.name.split(".")[0]) < oldest:
                    path.unlink(missing_ok=True)

    # --- journal -----------------------------------------------------------------------------------------------

    def _journal(self) -> Journal | None:
        data = read_or_none(self._path / "journal")
        return None if data is None else decode_journal(data, self._key)

    def _swap(self, effect: SwapJournal) -> Journal | None:
        with locked(self._path / "journal.lock"):
            found = self._journal()
            if (found.version if found else 0) != effect.expected:
                return found
            journal: Journal = effect.journal
            self._files.replace(self._path / "journal", [encode_journal(journal, self._key)])
            return journal
