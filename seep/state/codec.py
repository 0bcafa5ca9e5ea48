"""The bytes of everything persisted or sent: one envelope for what is kept, and the columns of a checkpoint.

    magic(4) version(2) kind(2) length(8) header-crc(4) | payload | payload-crc(4) mac(32)

The checksum finds damage, the MAC (`seep.state.mac`) finds forgery and foreign keys; the header has a checksum of its
own so that a flipped length is never believed. What is read is checked whole before any of it is decoded. Format 3,
which had HMAC-SHA256, is still read.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from seep.model.arrow import ArrowBatch, ArrowState
from seep.model.batch import Batch
from seep.model.epoch import Progress
from seep.model.ids import Generation, KeyRange, PartitionId
from seep.state import plain
from seep.state.checkpoint import Buffered, Checkpoint, Point
from seep.state.ipc import Bytes, read_record, write_record
from seep.state.mac import Mac

MAGIC = b"SEEP"
FORMAT = 4
HASHED_FORMAT = 3

CHECKPOINT = 1
JOURNAL = 2
RECORD = 3
FENCE = 4
PLAN = 5
NOTE = 6

_HEAD = struct.Struct("<4sHHQ")
_SUM = struct.Struct("<I")
_LONG_BYTES = struct.Struct(">BI")
"""What msgpack writes before that many bytes."""
_MANY_BYTES = 1 << 16
HEADER_BYTES = _HEAD.size + _SUM.size
TRAILER_BYTES = _SUM.size + 32


class DamagedError(ValueError):
    """Saved bytes that are not what was written."""


class TruncatedError(DamagedError):
    """The bytes end before the envelope does."""


class ForeignError(DamagedError):
    """Whole bytes, made with another key or by another format version."""


def seal(kind: int, payload: Sequence[Bytes], key: bytes) -> list[Bytes]:
    """The envelope around the payload's parts, as parts: nothing large is copied."""
    head = _HEAD.pack(MAGIC, FORMAT, kind, sum(memoryview(p).nbytes for p in payload))
    head += _SUM.pack(zlib.crc32(head))
    mac = Mac(key)
    for part in (head, *payload):
        mac.update(part)
    return [head, *payload, _SUM.pack(mac.checksum) + mac.tag()]


def sealed_bytes(data: Bytes) -> int:
    """The size of the whole envelope that begins here, by its header."""
    return HEADER_BYTES + _length(memoryview(data)) + TRAILER_BYTES


def unseal(kind: int, data: Bytes, key: bytes) -> memoryview:
    """The payload, checked. Raises DamagedError."""
    view = memoryview(data).cast("B")
    length = _length(view)
    end = HEADER_BYTES + length
    if len(view) < end + TRAILER_BYTES:
        raise TruncatedError(f"{len(view)} bytes where {end + TRAILER_BYTES} were written")
    if len(view) > end + TRAILER_BYTES:
        raise DamagedError("more bytes than were written")
    payload = view[HEADER_BYTES:end]
    checksum, tag = _checks(view, end, key)
    # The MAC alone would do; the checksum tells damage from a foreign key.
    if _SUM.unpack_from(view, end)[0] != checksum:
        raise DamagedError("the checksum does not match")
    if not hmac.compare_digest(tag, bytes(view[end + _SUM.size :])):
        raise ForeignError("the MAC does not match: written with another job key")
    found = _HEAD.unpack_from(view)[2]
    if found != kind:
        raise DamagedError(f"expected kind {kind}, found {found}")
    return payload


def format_of(data: Bytes) -> int:
    """Of an envelope that has been unsealed."""
    return int(_HEAD.unpack_from(data)[1])


def _checks(view: memoryview, end: int, key: bytes) -> tuple[int, bytes]:
    """The checksum and the MAC that should stand behind the payload."""
    if format_of(view) == HASHED_FORMAT:
        tag = hmac.digest(key, view[: end + _SUM.size], "sha256")
        return zlib.crc32(view[HEADER_BYTES:end]), tag
    mac = Mac(key)
    mac.update(view[:end])
    return mac.checksum, mac.tag()


def _length(view: memoryview) -> int:
    if len(view) < HEADER_BYTES:
        raise TruncatedError(f"{len(view)} bytes, shorter than a header")
    magic, version, _, length = _HEAD.unpack_from(view)
    if magic != MAGIC or _SUM.unpack_from(view, _HEAD.size)[0] != zlib.crc32(view[: _HEAD.size]):
        raise DamagedError("the header is damaged")
    if version not in (FORMAT, HASHED_FORMAT):
        raise ForeignError(f"format version {version}; this program reads {HASHED_FORMAT} and {FORMAT}")
    return int(length)


# --- plain values ------------------------------------------------------------------------------------------------


def encode_value(kind: int, value: Any, key: bytes) -> bytes:
    """A small plain value (numbers, text, bytes, lists, dicts) in its envelope."""
    return b"".join(bytes(p) for p in seal(kind, [msgpack.packb(value)], key))


def encode_parts(kind: int, value: Any, key: bytes) -> list[Bytes]:
    """The same as parts: many bytes that a value ends with are not copied."""
    return seal(kind, _packed(value), key)


def _packed(value: Any) -> list[Bytes]:
    packer = msgpack.Packer(autoreset=False)
    while isinstance(value, tuple | list) and value:
        packer.pack_array_header(len(value))
        for item in value[:-1]:
            packer.pack(item)
        value = value[-1]
    if isinstance(value, bytes) and len(value) >= _MANY_BYTES:
        return [packer.bytes() + _LONG_BYTES.pack(0xC6, len(value)), value]
    packer.pack(value)
    return [packer.bytes()]


def decode_value(kind: int, data: Bytes, key: bytes) -> Any:
    return unpack_plain(unseal(kind, data, key))


def unpack_plain(data: Bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise DamagedError(f"not a plain value: {error}") from error


# --- checkpoints -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """A checkpoint without its columns: those follow it, in the order it names them."""

    partition: PartitionId
    generation: Generation
    key_range: KeyRange
    version: int
    parent: int
    epoch: int
    now_ms: int
    watermark: int
    ended: bool
    tables: tuple[str, ...] | None
    buffers: tuple[tuple[str, tuple[tuple[Progress, int], ...]], ...]
    trimmed: Mapping[str, Progress]
    counts: Mapping[str, int]
    idle: bool
    before: Point | None
    schemas: tuple[bytes, ...]
    bodies: tuple[tuple[int, int], ...]
    """(schema number, bytes) of each record in turn; a batch is followed by its buckets."""


class _Bodies:
    """Collects records behind a header; each schema is written once."""

    def __init__(self) -> None:
        self.schemas: dict[bytes, int] = {}
        self.sizes: list[tuple[int, int]] = []
        self.parts: list[Bytes] = []

    def add(self, record: pa.RecordBatch) -> None:
        schema, message = write_record(record)
        self.sizes.append((self.schemas.setdefault(schema, len(self.schemas)), message.size))
        self.parts.append(message)

    def add_batch(self, batch: Batch) -> None:
        if not isinstance(batch, ArrowBatch):
            raise TypeError(f"only Arrow batches can be saved, not {type(batch).__name__}")
        self.add(batch.record)
        self.parts.append(np.ascontiguousarray(batch.buckets, dtype=np.uint16).tobytes())


def pack_checkpoint(checkpoint: Checkpoint) -> list[Bytes]:
    """The bytes of a checkpoint, or of a piece of one, without an envelope."""
    bodies = _Bodies()
    tables: tuple[str, ...] | None = None
    if checkpoint.state is not None:
        if not isinstance(checkpoint.state, ArrowState):
            raise TypeError(f"only Arrow state can be saved, not {type(checkpoint.state).__name__}")
        tables = tuple(checkpoint.state.tables)
        for name in tables:
            bodies.add(checkpoint.state.tables[name])
    buffers = []
    for edge, entries in checkpoint.buffers.items():
        for entry in entries:
            for batch in entry.batches:
                bodies.add_batch(batch)
        buffers.append((edge, tuple((entry.progress, len(entry.batches)) for entry in entries)))
    header = CheckpointHeader(
        checkpoint.partition,
        checkpoint.generation,
        checkpoint.key_range,
        checkpoint.version,
        checkpoint.parent,
        checkpoint.epoch,
        checkpoint.now_ms,
        checkpoint.watermark,
        checkpoint.ended,
        tables,
        tuple(buffers),
        checkpoint.trimmed,
        checkpoint.counts,
        checkpoint.idle,
        checkpoint.before,
        tuple(bodies.schemas),
        tuple(bodies.sizes),
    )
    packed = msgpack.packb(plain.pack(header))
    return [_SUM.pack(len(packed)), packed, bytes(_padding(len(packed))), *bodies.parts]


def _padding(header_bytes: int) -> int:
    """So that the columns behind a header begin on an 8-byte boundary, where they are read in place."""
    return -(_SUM.size + header_bytes) % 8


def unpack_checkpoint(payload: memoryview) -> Checkpoint:
    header, rest = _split(payload)
    try:
        return _assemble(header, rest)
    except (ValueError, IndexError, StopIteration) as error:
        raise DamagedError(f"not a checkpoint: {error}") from error


def _split(payload: memoryview) -> tuple[CheckpointHeader, memoryview]:
    try:
        size = _SUM.unpack_from(payload)[0]
        header = plain.unpack(CheckpointHeader, unpack_plain(payload[_SUM.size : _SUM.size + size]))
    except (struct.error, ValueError) as error:
        raise DamagedError(f"not a checkpoint: {error}") from error
    return header, payload[_SUM.size + size + _padding(size) :]


def _assemble(header: CheckpointHeader, rest: memoryview) -> Checkpoint:
    sizes = iter(header.bodies)
    at = 0

    def take(count: int) -> memoryview:
        nonlocal at
        if at + count > len(rest):
            raise DamagedError("the columns end early")
        at += count
        return rest[at - count : at]

    def record() -> pa.RecordBatch:
        schema, size = next(sizes)
        return read_record(header.schemas[schema], _aligned(take(size)))

    def batch() -> ArrowBatch:
        rows = record()
        return ArrowBatch(rows, np.frombuffer(take(rows.num_rows * 2), dtype=np.uint16))

    state = None if header.tables is None else ArrowState({name: record() for name in header.tables})
    buffers = {
        edge: tuple(Buffered(progress, tuple(batch() for _ in range(count))) for progress, count in entries)
        for edge, entries in header.buffers
    }
    return Checkpoint(
        header.partition,
        header.generation,
        header.key_range,
        header.version,
        header.parent,
        header.epoch,
        header.now_ms,
        header.watermark,
        header.ended,
        state,
        buffers,
        header.trimmed,
        header.counts,
        header.idle,
        header.before,
    )


def _aligned(view: memoryview) -> Bytes:
    """Arrow wants its columns on 8-byte boundaries; a message that lies askew in the file is copied once."""
    address = np.frombuffer(view, dtype=np.uint8).ctypes.data
    return view if address % 8 == 0 else bytes(view)
