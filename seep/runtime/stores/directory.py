"""A store in a directory that several processes use at once.

    partitions/NAME~NUMBER/   lock  fence  log  VERSION.checkpoint  VERSION.checkpoint.damaged  note-GENERATION
    journal  journal.lock

Every decision (is it fenced, does it exist, is the version right) is made under the partition's file lock, so two
processes never decide by the same stale view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
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
from seep.protocol.wire import decode_journal, encode_journal
from seep.runtime.stores.base import DAMAGED, EXISTS, FAILED, FENCED, LOST, StoreEffect
from seep.runtime.stores.checkpoints import CheckpointFiles
from seep.runtime.stores.files import Files, escape, locked, read_or_none
from seep.runtime.stores.log import Log, Tail
from seep.runtime.stores.notefiles import NoteFiles
from seep.state import plain
from seep.state.codec import FENCE, DamagedError, TruncatedError, decode_value, encode_value
from seep.state.saved import Saved

_UNSYNCED = Files(sync=False)


class DirectoryStore:
    def __init__(self, path: Path | str, key: bytes, fsync: bool = True) -> None:
        self._path = Path(path)
        self._key = key
        self._files = Files(fsync)
        self._logs: dict[PartitionId, Log] = {}
        self._checkpoints: dict[PartitionId, CheckpointFiles] = {}
        self._notes: dict[PartitionId, NoteFiles] = {}
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
            "damaged_checkpoints": sum(saved.damaged for saved in list(self._checkpoints.values())),
            "torn_tails": sum(log.torn_tails for log in list(self._logs.values())),
        }

    def tail(self, partition: PartitionId, place: Any = None) -> Tail:
        """For an onlooker who follows a partition's log; `place`: from where another one stood."""
        return Tail(self._place(partition) / "log", self._key, place)

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
                saved = self._saved(effect.partition)
                found = saved.chain(effect.upto, lambda one: one.load(effect.part))
                return StoreReply(effect.token, found, "" if found or not saved.newest() else DAMAGED)
            case NewestVersion():
                return StoreReply(effect.token, self._saved(effect.partition).newest())
            case FindCheckpoint():
                chain = self._saved(effect.partition).chain(0, Saved.check)
                return StoreReply(effect.token, (chain[-1].version, chain[-1].epoch) if chain else None)
            case DropCheckpoints():
                with locked(self._home(effect.partition) / "lock"):
                    if not self._fenced(effect.partition, effect.generation):
                        self._saved(effect.partition).drop(effect)
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

    def _place(self, partition: PartitionId) -> Path:
        return self._path / "partitions" / f"{escape(partition.operator)}~{partition.number}"

    def _home(self, partition: PartitionId) -> Path:
        return self._files.make_directory(self._place(partition))

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
            try:
                fence = self._fence(partition)
            except TruncatedError:
                fence = None  # cut short when the machine lost its power, and with it whoever was to be kept out
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
            missing = effect.after(log.last_epoch())
            if not missing:
                return StoreReply(effect.token, error=EXISTS)
            log.append(missing)
        return StoreReply(effect.token)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _saved(self, partition: PartitionId) -> CheckpointFiles:
        if partition not in self._checkpoints:
            self._checkpoints[partition] = CheckpointFiles(partition, self._home(partition), self._key, self._files)
        return self._checkpoints[partition]

    def _put(self, effect: PutCheckpoint) -> StoreReply:
        partition, generation = effect.checkpoint.partition, effect.checkpoint.generation
        if self._fenced(partition, generation):
            return StoreReply(effect.token, error=FENCED)
        if self._fence(partition) is None:
            return StoreReply(effect.token, error=LOST)
        root = self._saved(partition).put(effect.checkpoint, lambda: self._fenced(partition, generation))
        return StoreReply(effect.token, root, FENCED if root is None else "")

    def fold(self, partition: PartitionId, generation: Generation) -> None:
        with contextlib.suppress(OSError):  # a full disk: as long as before
            self._saved(partition).fold(lambda: self._fenced(partition, generation))

    # --- notes -------------------------------------------------------------------------------------------------

    def note(self, partition: PartitionId, generation: Generation, value: Any) -> None:
        self._note_files(partition).write(generation, value)

    def noted(self, partition: PartitionId, generation: Generation) -> Any:
        return self._note_files(partition).read(generation)

    def _note_files(self, partition: PartitionId) -> NoteFiles:
        if partition not in self._notes:
            self._notes[partition] = NoteFiles(self._home(partition), self._key)
        return self._notes[partition]

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
