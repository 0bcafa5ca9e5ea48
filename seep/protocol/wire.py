"""Messages as bytes: a list of parts, the first a small header, then the columns of a Frame.

A Frame is the hot path, so its columns are sent as they lie in memory and read without a copy; everything else is a
plain list by its type hints. A version that is not ours, an unknown type or a value that does not fit is a
ProtocolError: the receiver drops the message, never half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from seep.model.arrow import ArrowBatch
from seep.model.epoch import Progress
from seep.model.ids import Generation, PartitionId
from seep.protocol.journal import Journal
from seep.protocol.messages import (
    Accepted,
    Backup,
    Busy,
    Credit,
    Fetch,
    Frame,
    Held,
    Hello,
    Holding,
    Leave,
    Message,
    Plan,
    Refused,
    Report,
    Subscribe,
    SubscriptionId,
    Trim,
    Unsubscribe,
)
from seep.state import plain
from seep.state.checkpoint import Checkpoint
from seep.state.codec import JOURNAL, decode_value, encode_value, pack_checkpoint, unpack_checkpoint
from seep.state.ipc import Bytes, read_record, write_record

VERSION = 1

CONTROL = 0
"""The lane of small messages that must never wait behind rows."""
DATA = 1
"""The lane of rows, and of what must keep its place among them."""

_FRAME = 0
_TYPES: tuple[type[Any], ...] = (
    Frame,
    Subscribe,
    Accepted,
    Refused,
    Credit,
    Trim,
    Unsubscribe,
    Plan,
    Hello,
    Report,
    Backup,
    Holding,
    Fetch,
    Held,
    Busy,
    Leave,
)
"""Only ever appended to: a type's number is its place here."""
_NUMBERS = {kind: number for number, kind in enumerate(_TYPES)}


class ProtocolError(ValueError):
    """Bytes from a peer that are no message of this version."""


def lane(message: Message) -> int:
    """Sender to receiver keeps one order (Accepted, then Frames); all else goes ahead of the rows (a Backup may
    be large, and nobody waits for it)."""
    return DATA if isinstance(message, Frame | Accepted | Refused | Backup) else CONTROL


def encode(message: Message) -> list[Bytes]:
    if isinstance(message, Frame):
        return _encode_frame(message)
    if isinstance(message, Backup | Held):
        return _encode_copies(message)
    return [msgpack.packb((VERSION, _NUMBERS[type(message)], plain.pack(message)))]


def decode(parts: Sequence[Bytes]) -> Message:
    """The message. Raises ProtocolError."""
    try:
        version, number, body = msgpack.unpackb(parts[0])
        if version != VERSION:
            raise ProtocolError(f"protocol version {version}; this program speaks {VERSION}")
        if number == _FRAME:
            return _decode_frame(body, parts)
        if number in _COPIES:
            return _decode_copies(_TYPES[number], body, parts)
        if not 0 < number < len(_TYPES) or len(parts) != 1:
            raise ProtocolError(f"unknown message type {number} in {len(parts)} parts")
        message: Message = plain.unpack(_TYPES[number], body)
        return message
    except ProtocolError:
        raise
    except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"not a message: {error}") from error


def _encode_frame(frame: Frame) -> list[Bytes]:
    subscription, progress, batch = frame.subscription, frame.progress, frame.batch
    header = (
        VERSION,
        _FRAME,
        (
            subscription.receiver,
            subscription.generation,
            subscription.number,
            frame.sender,
            frame.sequence,
            frame.epoch,
            None if progress is None else plain.pack(progress),
        ),
    )
    if batch is None:
        return [msgpack.packb(header)]
    if not isinstance(batch, ArrowBatch):
        raise TypeError(f"only Arrow batches can be sent, not {type(batch).__name__}")
    schema, message = write_record(batch.record)
    buckets = np.ascontiguousarray(batch.buckets, dtype=np.uint16).data.cast("B") if batch.rows else b""
    return [msgpack.packb(header), schema, message, buckets]


_partition = plain.form(PartitionId).unpack
_generation = plain.form(Generation).unpack
_progress = plain.form(Progress | None).unpack
_integer = plain.form(int).unpack


def _decode_frame(body: Any, parts: Sequence[Bytes]) -> Frame:
    receiver, generation, number, sender, sequence, epoch, progress = body
    batch = None
    if len(parts) == 4:
        record = read_record(bytes(parts[1]), parts[2])
        buckets = np.frombuffer(parts[3], dtype=np.uint16) if record.num_rows else np.empty(0, dtype=np.uint16)
        if len(buckets) != record.num_rows:
            raise ProtocolError(f"{len(buckets)} buckets for {record.num_rows} rows")
        batch = ArrowBatch(record, buckets)
    elif len(parts) != 1:
        raise ProtocolError(f"a frame in {len(parts)} parts")
    return Frame(
        SubscriptionId(_partition(receiver), _generation(generation), _integer(number)),
        _partition(sender),
        _integer(sequence),
        _integer(epoch),
        batch,
        _progress(progress),
    )


# --- copies of checkpoints: the message without them, their sizes, then their bytes in one part -------------------

_COPIES = (_NUMBERS[Backup], _NUMBERS[Held])


class _Backup(NamedTuple):
    partition: PartitionId
    generation: Generation
    version: int
    worker: str


class _Held(NamedTuple):
    partition: PartitionId
    asker: PartitionId
    generation: Generation
    holder: str


def _encode_copies(message: Backup | Held) -> list[Bytes]:
    copies: tuple[Checkpoint, ...]
    bare: _Backup | _Held
    if isinstance(message, Held):
        copies, bare = message.chain, _Held(message.partition, message.asker, message.generation, message.holder)
    else:
        copies = () if message.checkpoint is None else (message.checkpoint,)
        bare = _Backup(message.partition, message.generation, message.version, message.worker)
    packed = [b"".join(pack_checkpoint(checkpoint)) for checkpoint in copies]
    header = msgpack.packb((VERSION, _NUMBERS[type(message)], (plain.pack(bare), [len(data) for data in packed])))
    return [header, b"".join(packed)] if packed else [header]


def _decode_copies(kind: type[Any], body: Any, parts: Sequence[Bytes]) -> Backup | Held:
    bare, sizes = body
    data = memoryview(parts[1]).cast("B") if len(parts) == 2 else memoryview(b"")
    if len(parts) > 2 or sum(sizes) != len(data) or any(size <= 0 for size in sizes):
        raise ProtocolError(f"{len(data)} bytes of checkpoints where {sum(sizes)} were announced")
    copies = []
    for size in sizes:
        copies.append(unpack_checkpoint(data[:size]))
        data = data[size:]
    if kind is Held:
        return Held(*plain.unpack(_Held, bare), tuple(copies))
    if len(copies) > 1:
        raise ProtocolError(f"a backup of {len(copies)} checkpoints")
    return Backup(*plain.unpack(_Backup, bare), copies[0] if copies else None)


# --- the journal, as the store keeps it --------------------------------------------------------------------------


def encode_journal(journal: Journal, key: bytes) -> bytes:
    return encode_value(JOURNAL, plain.pack(journal), key)


def decode_journal(data: Bytes, key: bytes) -> Journal:
    """The journal. Raises DamagedError (or MisfitError, when another version of the program wrote it)."""
    return plain.unpack(Journal, decode_value(JOURNAL, data, key))
