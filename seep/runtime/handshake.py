"""Mutual proof of the job key, before a byte of anything else is read.

    connector -> listener   hello: magic, version, lane, name, nonce         (fixed size)
    listener  -> connector  nonce, HMAC(key, "listener", its name, hello, nonce)
    connector -> listener   HMAC(key, "connector", listener's name, hello, nonce)

Every message has one size, so nothing is allocated or parsed on a stranger's word. The listener's name is in both
proofs, so a proof made for one process is of no use to another; fresh nonces on both sides make a replay useless. Both
sides then know a key of this connection alone (`session_key`), for what crosses a network.
"""

from __future__ import annotations

import hmac
import struct
from typing import NamedTuple

MAGIC = b"seep"
VERSION = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
LONGEST_NAME_BYTES = 64

_HELLO = struct.Struct(f"<4sBBH{LONGEST_NAME_BYTES}s{NONCE_BYTES}s")
HELLO_BYTES = _HELLO.size
ANSWER_BYTES = NONCE_BYTES + PROOF_BYTES


class HandshakeError(Exception):
    """The other side does not speak our language or does not know the job key."""


class Caller(NamedTuple):
    name: str
    lane: int


def hello(name: str, lane: int, nonce: bytes) -> bytes:
    encoded = name.encode()
    if not encoded or len(encoded) > LONGEST_NAME_BYTES:
        raise ValueError(f"a peer's name has 1 to {LONGEST_NAME_BYTES} bytes: {name!r}")
    return _HELLO.pack(MAGIC, VERSION, lane, len(encoded), encoded, nonce)


def read_hello(data: bytes) -> Caller:
    magic, version, lane, length, name, _ = _HELLO.unpack(data)
    if magic != MAGIC or version != VERSION or lane > 1 or not 0 < length <= LONGEST_NAME_BYTES:
        raise HandshakeError("not a seep peer of this version")
    try:
        return Caller(name[:length].decode(), lane)
    except UnicodeDecodeError as error:
        raise HandshakeError("a name that is no text") from error


def answer(key: bytes, listener: str, said: bytes, nonce: bytes) -> bytes:
    return nonce + _proof(key, b"listener", listener, said, nonce)


def check_answer(key: bytes, listener: str, said: bytes, data: bytes) -> bytes:
    """The connector's own proof, once the listener's is found right."""
    nonce, proof = data[:NONCE_BYTES], data[NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(key, b"listener", listener, said, nonce)):
        raise HandshakeError(f"{listener} does not know the job key")
    return _proof(key, b"connector", listener, said, nonce)


def check_proof(key: bytes, listener: str, said: bytes, nonce: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(proof, _proof(key, b"connector", listener, said, nonce)):
        raise HandshakeError("a caller does not know the job key")


def session_key(key: bytes, listener: str, said: bytes, nonce: bytes) -> bytes:
    """What only the two ends of this connection know, of what was said in the open and the job key."""
    return _proof(key, b"session", listener, said, nonce)


def _proof(key: bytes, side: bytes, listener: str, said: bytes, nonce: bytes) -> bytes:
    name = listener.encode()
    return hmac.digest(key, b"|".join([side, struct.pack("<H", len(name)), name, said, nonce]), "sha256")
