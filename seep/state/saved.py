"""A saved checkpoint: sections, then what they are.

    section | section | ... | contents (in their envelope) | size of the contents(4) magic(4)

A state of some size is cut by key range into sections, and β is a section of its own, so that whoever takes over some
of the keys reads those sections and nothing else. The contents hold the size and the MAC of each section, and are
themselves sealed: a section is checked when it is read, and one that is not needed is not read. What was torn off
shows in the size of the whole. The contents come last, so that a section is written as soon as it is made: a fold of
a large state never holds it whole.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import NamedTuple

import msgpack

from seep.model.arrow import ArrowState, compact, joined
from seep.model.ids import BUCKETS, EVERYTHING, GROUP_BUCKETS, KeyRange
from seep.state import plain
from seep.state.checkpoint import Checkpoint
from seep.state.codec import (
    CHECKPOINT,
    HASHED_FORMAT,
    DamagedError,
    TruncatedError,
    format_of,
    pack_checkpoint,
    seal,
    unpack_checkpoint,
    unpack_plain,
    unseal,
)
from seep.state.folding import fold
from seep.state.ipc import Bytes
from seep.state.mac import Mac, tag_of

SECTIONED_BYTES = 4 << 20
"""A smaller state is one section: it is read whole, whoever needs it."""
RANGES = tuple(KeyRange(low, low + GROUP_BUCKETS) for low in range(0, BUCKETS, GROUP_BUCKETS))
"""Of each section of a larger one: where key ranges are cut by load, too."""

_TAIL = struct.Struct("<I4s")
_MAGIC = b"PEES"
Read = Callable[[int, int], Bytes]
"""(offset, size) -> so many bytes, or fewer at the end."""


class Section(NamedTuple):
    key_range: KeyRange | None
    """Whose entries it may hold (EVERYTHING: it is needed for any of them); None: it is β."""
    size: int
    tag: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    front: bytes
    """The checkpoint without state and β, packed."""
    sections: tuple[Section, ...]


# --- writing -----------------------------------------------------------------------------------------------------


def encode_checkpoint(checkpoint: Checkpoint, key: bytes, sectioned_bytes: int = SECTIONED_BYTES) -> Iterator[Bytes]:
    """The bytes to be saved, as parts to be written one after the other."""
    state = checkpoint.state
    if state is not None and not isinstance(state, ArrowState):
        raise TypeError(f"only Arrow state can be saved, not {type(state).__name__}")
    return _write(checkpoint, () if state is None else _sections(state, sectioned_bytes), key)


def _sections(state: ArrowState, sectioned_bytes: int) -> Iterator[tuple[KeyRange, ArrowState]]:
    if state.size_bytes < sectioned_bytes:
        yield EVERYTHING, state
    else:
        yield EVERYTHING, state.common()
        yield from ((r, part) for r, part in zip(RANGES, state.cut(RANGES), strict=True) if part.rows)


def _write(checkpoint: Checkpoint, states: Iterable[tuple[KeyRange, ArrowState]], key: bytes) -> Iterator[Bytes]:
    bare = with_fields(checkpoint, state=None, buffers=dict.fromkeys(checkpoint.buffers, ()))
    sections: list[Section] = []

    def section(key_range: KeyRange | None, piece: Checkpoint) -> list[Bytes]:
        parts, mac = pack_checkpoint(piece), Mac(key)
        size = sum(memoryview(part).nbytes for part in parts)
        # The next one begins on an 8-byte boundary of the file, too, where its columns are read in place.
        parts.append(bytes(-size % 8))
        for part in parts:
            mac.update(part)
        sections.append(Section(key_range, size + len(parts[-1]), mac.tag()))
        return parts

    for key_range, state in states:
        yield from section(key_range, with_fields(bare, state=state))
    if any(checkpoint.buffers.values()):
        yield from section(None, with_fields(checkpoint, state=None))
    contents = Contents(b"".join(map(bytes, pack_checkpoint(bare))), tuple(sections))
    sealed = seal(CHECKPOINT, [msgpack.packb(plain.pack(contents))], key)
    yield from sealed
    yield _TAIL.pack(sum(map(len, sealed)), _MAGIC)


# --- reading -----------------------------------------------------------------------------------------------------


class Saved:
    """A saved checkpoint that is open: its contents are read and checked, its sections when they are asked for."""

    def __init__(self, size: int, read: Read, key: bytes) -> None:
        self._read = read
        self._key = key
        tail = size - _TAIL.size
        if tail < 0:
            raise TruncatedError(f"{size} bytes, shorter than their own end")
        length, magic = _TAIL.unpack(bytes(self._bytes(tail, _TAIL.size)))
        if magic != _MAGIC or length > tail:
            raise DamagedError("the end is damaged, or missing")
        envelope = self._bytes(tail - length, length)
        payload = unseal(CHECKPOINT, envelope, key)
        self._hashed = format_of(envelope) == HASHED_FORMAT
        try:
            self.contents = plain.unpack(Contents, unpack_plain(payload))
        except plain.MisfitError as error:
            raise DamagedError(f"not the contents of a checkpoint: {error}") from error
        if sum(section.size for section in self.contents.sections) != tail - length:
            raise TruncatedError(f"{tail - length} bytes of sections, others were written")
        self.front = unpack_checkpoint(memoryview(self.contents.front))

    @property
    def version(self) -> int:
        return self.front.version

    @property
    def parent(self) -> int:
        return self.front.parent

    def load(self, part: KeyRange | None = None) -> Checkpoint:
        """The checkpoint (`part`: of these buckets alone, without β). Raises DamagedError if a section that it needs
        is damaged."""
        states, buffers = [], {} if part else dict(self.front.buffers)
        for section, offset in self._places():
            if section.key_range is None:
                buffers |= {} if part else self._piece(section, offset).buffers
            elif part is None or section.key_range == EVERYTHING or section.key_range.overlaps(part):
                state = self._piece(section, offset).state
                assert isinstance(state, ArrowState)
                states.append(state if part is None else state.part(part))
        return with_fields(self.front, state=joined(states) if states else None, buffers=buffers)

    def check(self) -> Checkpoint:
        """All of its bytes are what was written; the checkpoint without state and β."""
        for section, offset in self._places():
            self._section(section, offset)
        return self.front

    def buffered(self) -> Checkpoint:
        """The checkpoint without its state."""
        found = [self._piece(section, offset) for section, offset in self._places() if section.key_range is None]
        return with_fields(self.front, buffers={**self.front.buffers, **(found[0].buffers if found else {})})

    def states(self) -> dict[KeyRange, Callable[[], ArrowState]]:
        """What reads each section of the state."""

        def reader(section: Section, offset: int) -> Callable[[], ArrowState]:
            def read() -> ArrowState:
                state = self._piece(section, offset).state
                assert isinstance(state, ArrowState)
                return state

            return read

        return {s.key_range: reader(s, offset) for s, offset in self._places() if s.key_range is not None}

    def _places(self) -> Iterator[tuple[Section, int]]:
        offset = 0
        for section in self.contents.sections:
            yield section, offset
            offset += section.size

    def _piece(self, section: Section, offset: int) -> Checkpoint:
        return unpack_checkpoint(memoryview(self._section(section, offset)))

    def _section(self, section: Section, offset: int) -> Bytes:
        data = self._bytes(offset, section.size)
        tag = hashlib.sha256(data).digest() if self._hashed else tag_of(data, self._key)
        if not hmac.compare_digest(tag, section.tag):
            raise DamagedError("the MAC of a section does not match")
        return data

    def _bytes(self, offset: int, size: int) -> Bytes:
        data = self._read(offset, size)
        if len(data) != size:
            raise TruncatedError(f"{len(data)} bytes where {size} were written")
        return data


def decode_checkpoint(data: Bytes, key: bytes, part: KeyRange | None = None) -> Checkpoint:
    """The checkpoint out of all its bytes. Raises DamagedError."""
    return Saved(len(data), lambda offset, size: data[offset : offset + size], key).load(part)


# --- folding -----------------------------------------------------------------------------------------------------


def fold_saved(chain: Sequence[Saved], key: bytes, sectioned_bytes: int = SECTIONED_BYTES) -> Iterator[Bytes]:
    """The bytes of the newest of the chain (full one first), standing on its own; a large one section by section."""
    newest = fold([saved.buffered() for saved in chain])
    later = [state for saved in chain[1:] if isinstance(state := saved.load(EVERYTHING).state, ArrowState)]
    sections = chain[0].states()
    if len(sections) > 1:
        return _write(newest, _folded(sections, later), key)
    states = [*(read() for read in sections.values()), *later]
    return encode_checkpoint(with_fields(newest, state=compact(states) if states else None), key, sectioned_bytes)


def _folded(
    first: dict[KeyRange, Callable[[], ArrowState]], later: Sequence[ArrowState]
) -> Iterator[tuple[KeyRange, ArrowState]]:
    yield EVERYTHING, compact([first[EVERYTHING](), *(state.common() for state in later)])
    for key_range, *parts in zip(RANGES, *(state.cut(RANGES) for state in later), strict=True):
        known = [first[key_range]()] if key_range in first else []
        folded = compact([*known, *parts])
        if folded.rows:
            yield key_range, folded
