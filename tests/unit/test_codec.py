"""The envelope refuses whatever is not exactly what was written, with the right name for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.model.ids import Generation, KeyRange, PartitionId
from seep.protocol.messages import Status
from seep.state import plain
from seep.state.codec import (
    JOURNAL,
    RECORD,
    DamagedError,
    ForeignError,
    TruncatedError,
    decode_value,
    encode_parts,
    encode_value,
    sealed_bytes,
)

KEY = b"k" * 32
VALUE = {"at": [1, 2.5, None, "x", b"y"]}


def test_a_value_comes_back() -> None:
    data = encode_value(RECORD, VALUE, KEY)
    assert decode_value(RECORD, data, KEY) == VALUE
    assert sealed_bytes(data) == len(data)


@pytest.mark.parametrize("size", [0, 1, 255, 65_535, 65_536, 1_000_000])
def test_parts_are_the_same_bytes(size: int) -> None:
    many = b"x" * size
    for value in (many, (0, 7, ((3, 4), many)), (0, [many]), (1, 7, None), [], (many, 1), {"a": many}):
        parts = encode_parts(RECORD, value, KEY)
        assert b"".join(map(bytes, parts)) == encode_value(RECORD, value, KEY)


@given(st.data())
def test_no_flipped_bit_goes_unseen(data: st.DataObject) -> None:
    sealed = bytearray(encode_value(RECORD, VALUE, KEY))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedError):
        decode_value(RECORD, sealed, KEY)


def test_every_cut_is_seen() -> None:
    sealed = encode_value(RECORD, VALUE, KEY)
    for end in range(len(sealed)):
        with pytest.raises(TruncatedError):
            decode_value(RECORD, sealed[:end], KEY)
    with pytest.raises(DamagedError, match="more bytes"):
        decode_value(RECORD, sealed + b"\x00", KEY)


def test_another_key_and_another_kind() -> None:
    sealed = encode_value(RECORD, VALUE, KEY)
    with pytest.raises(ForeignError, match="another job key"):
        decode_value(RECORD, sealed, b"x" * 32)
    with pytest.raises(DamagedError, match="kind"):
        decode_value(JOURNAL, sealed, KEY)


def test_plain_values_are_checked_by_their_hints() -> None:
    status = Status(PartitionId("a", 1), Generation(1, 2), 3, 4, statistics={"rows": 5})
    assert plain.unpack(Status, plain.pack(status)) == status
    for wrong in ([1], "text", ["a", "1"], ["a", 1, 2], ["a", True], None):
        with pytest.raises(plain.MisfitError):
            plain.unpack(PartitionId, wrong)
    with pytest.raises(TypeError):
        plain.form(set)
    assert plain.unpack(KeyRange, [1, 2]) == KeyRange(1, 2)
