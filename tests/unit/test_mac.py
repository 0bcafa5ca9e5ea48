"""The MAC is what its module says, computed here with whole numbers; and no other bytes have it."""

from __future__ import annotations

import hashlib
import zlib

from hypothesis import given
from hypothesis import strategies as st

from seep.state.mac import Mac, tag_of

KEY = b"k" * 32
PRIME = (1 << 130) - 5
CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF


def by_hand(data: bytes, key: bytes) -> bytes:
    point = int.from_bytes(hashlib.blake2b(b"seep: point", key=key, digest_size=16).digest(), "little") & CLAMP
    value = 0
    for at in range(0, len(data), 16):
        value = (value + int.from_bytes(data[at : at + 16] + b"\x01", "little")) * point % PRIME
    hidden = (value % (1 << 128)).to_bytes(16, "little")
    second = hashlib.blake2b(b"seep: tag", key=key, digest_size=32).digest()
    return hashlib.blake2b(hidden, key=second, digest_size=32).digest()


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_it_is_the_polynomial_under_a_second_key(data: bytes, key: bytes) -> None:
    assert tag_of(data, key) == by_hand(data, key)


@given(st.lists(st.binary(max_size=40)))
def test_how_the_bytes_are_cut_does_not_show(parts: list[bytes]) -> None:
    mac, whole = Mac(KEY), b"".join(parts)
    for part in parts:
        mac.update(part)
    assert (mac.checksum, mac.tag()) == (zlib.crc32(whole), tag_of(whole, KEY))


def test_many_bytes_go_in_pieces() -> None:
    data = bytes(range(256)) * 12_345
    assert tag_of(data, KEY) == by_hand(data, KEY)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_other_bytes_and_other_keys_have_another(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[place // 8] ^= 1 << place % 8
    tags = {tag_of(one, KEY) for one in (data, bytes(flipped), data + b"\x00", data[:-1])} | {tag_of(data, b"o" * 32)}
    assert len(tags) == 5
