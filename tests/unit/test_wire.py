"""Every message survives the wire; nothing else does."""

from __future__ import annotations

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.model.arrow import ArrowBatch
from seep.model.epoch import Progress
from seep.model.ids import FOREVER, Generation, KeyRange, PartitionId, Place
from seep.protocol import wire
from seep.protocol.journal import LIVE, Entry, Journal, Replace
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
    Status,
    Subscribe,
    SubscriptionId,
    Trim,
    Unsubscribe,
)
from seep.protocol.wire import ProtocolError, decode, encode
from seep.state.checkpoint import Checkpoint
from seep.state.ipc import Bytes

A, B = PartitionId("a", 1), PartitionId("b/c", 2)
G = Generation(3, 4)
S = SubscriptionId(B, G, 7)
ENTRY = Entry(A, KeyRange(0, 4096), 1, FOREVER, LIVE, G, "w1", ((B, 3),), 2)
JOURNAL = Journal(4, 5, {A: ENTRY}, (Replace(1, "a", (A,), (KeyRange(0, 1),), False, 3, (B,)),), {"a": 2}, 3, 4, "stop")
SAVED = Checkpoint(A, G, KeyRange(0, 9), 3, 2, 7, 8, -9, False, None, {"out": ()}, {"out": Progress(5, 1, 2, 3)}, {})

MESSAGES: list[Message] = [
    Subscribe(A, G, S, "out", KeyRange(1, 2), -1, 3, "w1"),
    Accepted(S, A),
    Refused(S, A, "behind"),
    Frame(S, A, 0, 9, None, Progress(9, 1, -(2**62), 2**64 - 1, True)),
    Credit(S, A, "out", 4, 5, 6, 7),
    Trim(A, "out", B, G, 5, 6),
    Unsubscribe(S, A, "out"),
    Plan(JOURNAL),
    Hello("w1"),
    Hello("w1", Place("h1", "x1")),
    Plan(JOURNAL, {"w1": Place("h1", "x1")}),
    Leave("w1", at_once=True),
    Busy("w1", A, 7, 812.5),
    Busy("w1", None, -1, 0.0),
    Backup(A, G, 3, "w1"),
    Backup(A, G, 3, "w1", SAVED),
    Holding(A, G, 3, True),
    Fetch(A, 3, None, B, G, "w1"),
    Fetch(A, 3, KeyRange(64, 128), B, G, "w1"),
    Held(A, B, G, "w2", ()),
    Held(A, B, G, "w2", (SAVED, SAVED)),
    Report(
        "w1", statuses=(Status(A, G, 1, 2, statistics={"rows": 2**40}),), time_ms=5, cpu_seconds=1.5, journal_version=2
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_comes_back(message: Message) -> None:
    assert decode([bytes(p) for p in encode(message)]) == message


@pytest.mark.parametrize(
    "record",
    [
        pa.record_batch({"a": [1, 2, None], "b": ["x", None, "long text"]}),
        pa.record_batch({"a": [1, 2, 3, 4, 5]}).slice(1, 3),
        pa.record_batch({"a": pa.array([], pa.int64())}),
        pa.record_batch({"d": pa.array(["x", "y", "x"]).dictionary_encode()}),
        pa.record_batch({"s": [{"p": [1, 2]}, None, {"p": []}]}),
    ],
)
def test_rows_come_back(record: pa.RecordBatch) -> None:
    batch = ArrowBatch(record, np.arange(record.num_rows, dtype=np.uint16))
    found = decode(encode(Frame(S, A, 1, 2, batch, None)))
    assert isinstance(found, Frame)
    assert isinstance(found.batch, ArrowBatch)
    assert found.batch.record.equals(record)
    assert found.batch.buckets.tolist() == list(range(record.num_rows))


def test_rows_are_read_without_a_copy() -> None:
    batch = ArrowBatch(pa.record_batch({"a": list(range(1000))}), np.zeros(1000, dtype=np.uint16))
    parts = encode(Frame(S, A, 1, 2, batch, None))
    found = decode(parts)
    message = parts[2]
    assert isinstance(found, Frame)
    assert isinstance(found.batch, ArrowBatch)
    assert isinstance(message, pa.Buffer)
    address = found.batch.record.column(0).buffers()[1].address
    assert message.address <= address < message.address + message.size


def test_what_is_no_message_is_refused() -> None:
    batch = ArrowBatch(pa.record_batch({"a": [1, 2]}), np.zeros(2, dtype=np.uint16))
    frame = encode(Frame(S, A, 1, 2, batch, None))
    wrong: list[list[Bytes]] = [
        [],
        [b""],
        [b"\xff\xff"],
        [msgpack.packb((2, 8, ["w"]))],
        [msgpack.packb((1, 99, ["w"]))],
        [msgpack.packb((1, -1, ["w"]))],
        [msgpack.packb((1, 8, [5]))],
        [msgpack.packb((1, 8, ["w"])), b"more"],
        [msgpack.packb((1, 0, []))],
        frame[:3],
        [*frame[:3], b"\x00"],
        [*frame[:3], b"\x00" * 6],
        [frame[0], frame[1], b"rubbish", frame[3]],
        [frame[0], b"rubbish", frame[2], frame[3]],
        [frame[0], b"", frame[2], frame[3]],
    ]
    for parts in wrong:
        with pytest.raises(ProtocolError):
            decode(parts)


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_noise_never_raises_anything_else(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        decode(parts)


def test_control_goes_ahead_of_rows() -> None:
    data = {type(m) for m in MESSAGES if wire.lane(m) == wire.DATA}
    assert data == {Frame, Accepted, Refused, Backup}


def test_the_journal_comes_back() -> None:
    assert wire.decode_journal(wire.encode_journal(JOURNAL, b"k"), b"k") == JOURNAL
