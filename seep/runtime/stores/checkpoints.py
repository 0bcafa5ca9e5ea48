"""The checkpoints of one partition in its directory: VERSION.checkpoint, and VERSION.checkpoint.damaged.

Large ones are written beside their place without the partition's lock; only the rename happens under it. A damaged one
is set aside when it is found, which may be when another part of it was read all the time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from seep.model.ids import PartitionId
from seep.protocol.effects import DropCheckpoints
from seep.runtime.stores.base import newest_chain
from seep.runtime.stores.files import Files, locked, opened
from seep.state.checkpoint import Checkpoint
from seep.state.codec import DamagedError, ForeignError
from seep.state.saved import Saved, encode_checkpoint, fold_saved

_SUFFIX = ".checkpoint"
CHAIN_MINIMUM = 6
CHAIN_MAXIMUM = 60
"""A chain is folded when its increments outweigh half of its beginning, or when it is this long."""
Found = TypeVar("Found", Checkpoint, Saved)


class CheckpointFiles:
    def __init__(self, partition: PartitionId, home: Path, key: bytes, files: Files) -> None:
        self.damaged = 0
        self._partition = partition
        self._home = home
        self._key = key
        self._files = files
        self._growing: list[tuple[int, int]] = []
        """The chain that checkpoints add to: (version, bytes)."""

    # --- reading -----------------------------------------------------------------------------------------------

    def versions(self) -> dict[int, Path]:
        return {int(p.name.removesuffix(_SUFFIX)): p for p in self._home.glob(f"*{_SUFFIX}")}

    def newest(self) -> int:
        """The highest version there was, damaged or not; 0: there never was one. Not what a killed process was still
        writing beside its place: that never was one."""
        damaged = self._home.glob(f"*{_SUFFIX}.damaged")
        return max((*self.versions(), *(int(p.name.split(".")[0]) for p in damaged)), default=0)

    def chain(self, upto: int, use: Callable[[Saved], Checkpoint]) -> list[Checkpoint]:
        """The newest chain (none newer than `upto`) of which every part is fit for this use."""
        with contextlib.ExitStack() as files:
            return self._chain(upto, use, files)

    def _chain(self, upto: int, use: Callable[[Saved], Found], files: contextlib.ExitStack) -> list[Found]:
        paths = self.versions()
        return newest_chain(paths, lambda version: self._read(version, paths[version], use, files), upto)

    def _read(
        self, version: int, path: Path, use: Callable[[Saved], Found], files: contextlib.ExitStack
    ) -> Found | None:
        try:
            size, read = files.enter_context(opened(path))
            saved = Saved(size, read, self._key)
            if (saved.front.partition, saved.version) != (self._partition, version):
                raise DamagedError(f"{path.name} holds {saved.front.partition} version {saved.version}")
            return use(saved)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self.damaged += 1
            # Kept for whoever looks into it, out of the way of every later restore. A foreign one stays in its
            # place: the key or the program may be the wrong one, not the bytes.
            if not isinstance(error, ForeignError):
                with contextlib.suppress(FileNotFoundError):
                    path.rename(path.with_name(f"{path.name}.damaged"))
            return None

    # --- writing -----------------------------------------------------------------------------------------------

    def put(self, checkpoint: Checkpoint, fenced: Callable[[], bool]) -> int | None:
        """The version that its chain starts from; None: it was fenced meanwhile."""
        target = self._home / f"{checkpoint.version}{_SUFFIX}"
        neighbour = self._files.prepare(target, encode_checkpoint(checkpoint, self._key))
        try:
            with locked(self._home / "lock"):
                # Asked again: the fence may have been raised while the bytes were written.
                if fenced():
                    return None
                self._files.commit(neighbour, target)
                return self._grow(checkpoint, target.stat().st_size)
        finally:
            neighbour.unlink(missing_ok=True)  # unless it has its place

    def _grow(self, checkpoint: Checkpoint, size_bytes: int) -> int:
        chain = self._growing
        if not checkpoint.parent:
            chain = []
        elif not chain or chain[-1][0] != checkpoint.parent:
            # Put by a process before us: it knew the sizes, we ask the directory.
            with contextlib.ExitStack() as files:
                points = self._chain(checkpoint.parent, lambda saved: saved, files)
            paths = self.versions()
            chain = [(point.version, paths[point.version].stat().st_size) for point in points]
        self._growing = [*chain, (checkpoint.version, size_bytes)]
        return self._growing[0][0]

    def fold(self, fenced: Callable[[], bool]) -> None:
        """Make a chain that has grown long into one full checkpoint, beside whatever else goes on."""
        chain = self._growing
        if not outgrown(chain):
            return
        version = chain[-1][0]
        target = self._home / f"{version}{_SUFFIX}"
        with self._folded(version) as neighbour, locked(self._home / "lock"):
            # What was dropped meanwhile must not come back.
            if neighbour is not None and target.exists() and not fenced():
                self._files.commit(neighbour, target)
                self._shorten(version, target.stat().st_size)

    @contextlib.contextmanager
    def _folded(self, version: int) -> Iterator[Path | None]:
        """The chain up to this version as one file; None: it cannot be read any more."""
        neighbour = None
        with contextlib.ExitStack() as files:
            saved = self._chain(version, lambda one: one, files)
            if saved and saved[-1].version == version:
                # A section found damaged here is set aside by whoever needs it.
                with contextlib.suppress(DamagedError):
                    target = self._home / f"{version}{_SUFFIX}"
                    neighbour = self._files.prepare(target, fold_saved(saved, self._key))
        try:
            yield neighbour
        finally:
            if neighbour is not None:
                neighbour.unlink(missing_ok=True)

    def _shorten(self, version: int, size_bytes: int) -> None:
        known = [at for at, (v, _) in enumerate(self._growing) if v == version]
        if known:
            self._growing = [(version, size_bytes), *self._growing[known[0] + 1 :]]

    def drop(self, effect: DropCheckpoints) -> None:
        for version, path in self.versions().items():
            if version < effect.below and version not in effect.keep:
                path.unlink(missing_ok=True)
        # What a killed process was writing beside its place; a thread of this one may be folding.
        for path in self._home.glob(f"*{_SUFFIX}.*.tmp"):
            begun, _, process = path.name.split(".")[:3]
            if int(begun) < effect.below and int(process) != os.getpid():
                path.unlink(missing_ok=True)
        # What was damaged stays as long as anything that is older, for whoever looks into it.
        oldest = min((effect.below, *effect.keep))
        for path in self._home.glob(f"*{_SUFFIX}.damaged"):
            if int(path.name.split(".")[0]) < oldest:
                path.unlink(missing_ok=True)


def outgrown(chain: Sequence[tuple[int, int]]) -> bool:
    """Is this chain of (version, bytes) worth folding?"""
    grown_bytes = sum(size for _, size in chain[1:])
    return len(chain) > CHAIN_MINIMUM and (grown_bytes > chain[0][1] / 2 or len(chain) > CHAIN_MAXIMUM)
