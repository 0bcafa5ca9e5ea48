"""A peer without the job's key at a real worker's socket: refused, counted, and nothing of it is decoded."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from seep.running.job import Job
from seep.runtime import handshake
from tests.scenarios.oracles import advance, assert_exact, counting, until
from tests.scenarios.test_metrics import scrape

ROWS = 20_000


def call(job: Job, worker: str, data: bytes, proof: bytes = b"") -> bytes:
    """Say this to a worker; what it answers until it hangs up."""
    directory = os.open(job.directory.path / "sockets", os.O_RDONLY | os.O_DIRECTORY)
    name = hashlib.blake2b(worker.encode(), digest_size=16).hexdigest()
    answer = b""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(f"/proc/self/fd/{directory}/{name}")
        os.close(directory)
        sock.sendall(data)
        if proof:
            while len(answer) < handshake.ANSWER_BYTES:
                answer += sock.recv(1000)
            sock.sendall(proof)
        try:
            while more := sock.recv(1000):
                answer += more
        except ConnectionResetError:
            return answer
    return answer


@pytest.mark.timeout(90)
def test_who_does_not_know_the_key_gets_nowhere(begin: Callable[..., Job], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = begin(counting("strangers", ROWS, gate))
    advance(job, 10)
    worker = job.journal.live("count")[0].worker
    hello = handshake.hello("controller", 0, b"n" * 32)
    before = scrape(job)
    # What is no hello at all is hung up on without a word; a good hello gets a challenge, a wrong proof nothing more.
    assert call(job, worker, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".ljust(handshake.HELLO_BYTES, b"x")) == b""
    assert len(call(job, worker, hello, proof=bytes(32))) == handshake.ANSWER_BYTES
    flipped = bytearray(hello)
    flipped[0] ^= 1
    assert call(job, worker, bytes(flipped)) == b""

    def refused() -> float:
        now = scrape(job)
        assert now["seep_worker_messages_rejected_total"] == before["seep_worker_messages_rejected_total"]
        return sum(now["seep_worker_connections_refused_total"].values())

    until(lambda: refused() == 3, "three refusals")
    gate.touch()
    assert_exact(job.wait(60)["counts"].to_pylist(), ROWS)


def test_every_flipped_bit_of_the_handshake_is_refused() -> None:
    key, said, nonce = b"k" * 32, handshake.hello("w1", 1, b"n" * 32), b"m" * 32
    proof = handshake.check_answer(key, "w2", said, handshake.answer(key, "w2", said, nonce))
    handshake.check_proof(key, "w2", said, nonce, proof)
    for at in range(len(proof) * 8):
        wrong = bytearray(proof)
        wrong[at // 8] ^= 1 << at % 8
        with pytest.raises(handshake.HandshakeError):
            handshake.check_proof(key, "w2", said, nonce, bytes(wrong))
    for at in range(len(said) * 8):
        other = bytearray(said)
        other[at // 8] ^= 1 << at % 8
        with pytest.raises(handshake.HandshakeError):
            handshake.check_proof(key, "w2", bytes(other), nonce, proof)
