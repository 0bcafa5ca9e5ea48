"""What crosses a network, unreadable and unchangeable to whoever carries it: records under AES-GCM.

Each connection has a key of its own, made from the job key and both sides' fresh nonces, and carries records one way; a
record's nonce is its number. So one that was changed, repeated, left out or put elsewhere does not open, and its
connection ends: to the protocol that is a peer to connect to anew (docs/decisions/0015-several-hosts.md).
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from seep.state.ipc import Bytes

TAG_BYTES = 16
"""So much longer than its content is a record."""
_NONCE_BYTES = 12


class BrokenSealError(Exception):
    """A record is not what the other side sealed next."""


class Seal:
    """One side of one connection.

    >>> here, there = Seal(b"k" * 32), Seal(b"k" * 32)
    >>> there.open(here.seal(b"rows"))
    b'rows'
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._number = 0

    def seal(self, content: Bytes) -> bytes:
        return self._cipher.encrypt(self._next(), _plain(content), None)

    def open(self, record: Bytes) -> bytes:
        try:
            return self._cipher.decrypt(self._next(), _plain(record), None)
        except InvalidTag as error:
            raise BrokenSealError(f"record {self._number} was not sealed by the peer") from error

    def _next(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(_NONCE_BYTES, "little")


def _plain(data: Bytes) -> Bytes:
    """As the cipher takes it; an empty view cannot be cast."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else b""
