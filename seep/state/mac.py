"""The MAC of everything that is saved: nobody without the job's key can change a byte, or make up a record.

    tag = BLAKE2b(second key, polynomial of the bytes at a secret point (Poly1305's, modulo 2^130 - 5))

A polynomial finds two different inputs equal with a chance of about 2^-100, but may be seen by nobody; the second step
hides it. Hashing alone would be simpler, and costs six to eleven times as much on a processor without instructions for
SHA-256: then it is the dearest part of a checkpoint (docs/decisions/0034-a-cheaper-mac.md). There is no nonce, so the
same bytes always get the same tag.
"""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache

from cryptography.hazmat.primitives.poly1305 import Poly1305

from seep.state.ipc import Bytes

TAG_BYTES = 32
_PIECE_BYTES = 1 << 20
"""The polynomial holds Python's lock for a quarter of a millisecond then; the checksum lets go of it."""


class Mac:
    """Of parts, one after the other. `checksum`, which needs no key, tells damage from a foreign key.

    >>> mac = Mac(b"k" * 32)
    >>> mac.update(b"one, ")
    >>> mac.update(b"two")
    >>> mac.tag() == tag_of(b"one, two", b"k" * 32)
    True
    """

    def __init__(self, key: bytes) -> None:
        point, self._second = _keys(key)
        self._polynomial = Poly1305(point)
        self.checksum = 0

    def update(self, part: Bytes) -> None:
        view = memoryview(part)
        if not view.nbytes:
            return  # an empty view cannot be cast
        view = view.cast("B")
        for at in range(0, len(view), _PIECE_BYTES):
            piece = view[at : at + _PIECE_BYTES]
            self.checksum = zlib.crc32(piece, self.checksum)
            self._polynomial.update(piece)

    def tag(self) -> bytes:
        """Once, at the end."""
        return hashlib.blake2b(self._polynomial.finalize(), key=self._second, digest_size=TAG_BYTES).digest()


def tag_of(data: Bytes, key: bytes) -> bytes:
    mac = Mac(key)
    mac.update(data)
    return mac.tag()


@lru_cache(maxsize=16)
def _keys(key: bytes) -> tuple[bytes, bytes]:
    """The secret point (behind it zeros: what Poly1305 would add), and the key of the second step."""
    point = hashlib.blake2b(b"seep: point", key=key, digest_size=16).digest()
    return point + bytes(16), hashlib.blake2b(b"seep: tag", key=key, digest_size=32).digest()
