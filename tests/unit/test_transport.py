"""Messages arrive whole and in order; strangers get nowhere; a killed peer is seen at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seep.runtime import handshake, hosts, link, transport
from seep.runtime.transport import CONTROL, DATA, Transport

KEY = b"k" * 32
Open = Callable[..., Transport]


@pytest.fixture(params=["one host", "several hosts"])
def open_transport(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Of several hosts: each process believes that the others are on another one, and meets them by TCP."""
    opened = []
    several = request.param == "several hosts"
    find = hosts.Whereabouts.find

    def find_elsewhere(self: hosts.Whereabouts, name: str) -> tuple[str, int] | None:
        with monkeypatch.context() as patch:
            patch.setattr(hosts, "this_host", lambda: "another")
            return find(self, name)

    monkeypatch.setattr(hosts.Whereabouts, "find", find_elsewhere)

    def make(name: str, key: bytes = KEY) -> Transport:
        opened.append(Transport(tmp_path / ("deep" * 30), name, key, network_address="127.0.0.1" if several else ""))
        return opened[-1]

    yield make
    for one in opened:
        if one._wake_read.fileno() >= 0:
            one.close()


def pump(
    receiver: Transport, *others: Transport, until: int = 1, seconds: float = 5.0
) -> list[tuple[str, list[bytes]]]:
    """What `receiver` gets, while the others are served too."""
    found: list[tuple[str, list[bytes]]] = []
    deadline = time.monotonic() + seconds
    while len(found) < until and time.monotonic() < deadline:
        for other in others:
            other.poll(0)
        found += [(name, [bytes(p) for p in parts]) for name, parts in receiver.poll(1)]
    return found


def test_messages_of_every_size_arrive_whole_and_in_order(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b")
    sizes = [0, 1, 39, 40, 41, 65_536, 65_537, 262_143, 262_144, 262_145, 3_000_000, 5, 0]
    sent = [[bytes([n]) * size, b"tail"][: 1 + n % 2] for n, size in enumerate(sizes * 3)]
    for parts in sent:
        a.send("b", parts, DATA)
    assert [parts for _, parts in pump(b, a, until=len(sent))] == sent
    assert b.statistics()["received"] == len(sent)


def test_many_small_messages_both_ways(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b")
    for n in range(5_000):
        a.send("b", [struct.pack("<I", n)], CONTROL)
        b.send("a", [struct.pack("<I", n), b"x" * (n % 100)], CONTROL)
    got = pump(b, a, until=5_000)
    assert [struct.unpack("<I", parts[0])[0] for _, parts in got] == list(range(5_000))
    assert {name for name, _ in got} == {"a"}


def test_control_does_not_wait_behind_rows(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b")
    a.send("b", [b"open"], DATA)
    a.send("b", [b"open"], CONTROL)
    pump(b, a, until=2)
    for _ in range(20):
        a.send("b", [bytes(5_000_000)], DATA)
    a.send("b", [b"now"], CONTROL)
    first = pump(b, until=1)
    assert [b"now"] in [parts for _, parts in first]
    assert len(first) < 20


def test_a_message_to_nobody_is_dropped(open_transport: Open) -> None:
    a = open_transport("a")
    a.send("nobody", [b"x"])
    assert a.statistics()["dropped"] == 1
    b = open_transport("nobody")
    a.send("nobody", [b"y"])
    assert pump(b, a) == [("a", [b"y"])]


def test_a_full_queue_drops(open_transport: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "QUEUE_BYTES_MAXIMUM", 1_000_000)
    a, b = open_transport("a"), open_transport("b")
    for _ in range(10):
        a.send("b", [bytes(400_000)], DATA)
    assert a.statistics()["dropped"] == 7
    assert len(pump(b, a, until=3)) == 3


def test_another_key_gets_nowhere(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b", b"other" * 8)
    a.send("b", [b"secret"])
    assert pump(b, a, seconds=0.2) == []
    assert not a.connected("b")
    assert not b.connected("a")
    assert a.lost() == b.lost() == []


def test_a_stranger_is_refused_before_anything_is_read(open_transport: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_SECONDS", 0.05)
    a = open_transport("a")
    noise = [b"GET / HTTP/1.1\r\n" + b"x" * 200, b"", handshake.hello("b", 0, b"n" * 32) + b"\x00" * 32]
    for data in noise:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(a._address("a"))
            sock.sendall(data)
            assert pump(a, seconds=0.15) == []
            sock.settimeout(1)
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(1000):
                    pass
    assert a.statistics()["refused"] == 3
    assert a.lost() == []


def test_a_crowd_of_strangers_keeps_nobody_out(open_transport: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STRANGERS_MAXIMUM", 4)
    a, b = open_transport("a"), open_transport("b")
    with contextlib.ExitStack() as crowd:
        for _ in range(9):
            sock = crowd.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(a._address("a"))
        a.poll(0)
        b.send("a", [b"x"])
        assert pump(a, b) == [("b", [b"x"])]
        assert len(a._strangers) <= 4


def test_a_replayed_proof_is_useless() -> None:
    said = handshake.hello("b", 0, b"n" * 32)
    proof = handshake.check_answer(KEY, "a", said, handshake.answer(KEY, "a", said, b"1" * 32))
    handshake.check_proof(KEY, "a", said, b"1" * 32, proof)
    for listener, nonce in (("a", b"2" * 32), ("c", b"1" * 32)):
        with pytest.raises(handshake.HandshakeError):
            handshake.check_proof(KEY, listener, said, nonce, proof)


def test_an_announced_size_is_checked_before_it_is_allocated(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b")
    a.send("b", [b"hello"])
    pump(b, a)
    there, prefix = a._outgoing["b", CONTROL], link._PREFIX.pack(1, 1 << 50, 0, 0, 0)
    there.sock.sendall(prefix if there._seal is None else there._seal.seal(prefix))
    assert pump(b, a, seconds=0.2) == []
    assert b.lost() == ["a"]
    with pytest.raises(ValueError, match="5 parts"):
        a.send("b", [b""] * 5)


class Wire:
    """A connection between two hosts, with somebody on it who sees and changes everything."""

    def __init__(self) -> None:
        here, self.from_here = socket.socketpair()
        there, self.to_there = socket.socketpair()
        for sock in (here, self.from_here, there, self.to_there):
            sock.setblocking(False)
        self.outgoing = link.Outgoing(here, "a", "b", DATA, KEY, b"1" * 32, sealed=True)
        self.incoming = link.Incoming(there, "b", KEY, b"2" * 32, sealed=True)
        self.outgoing.write()
        for _ in range(2):
            self.to_there.sendall(self.carried())
            self.incoming.read()
            with contextlib.suppress(BlockingIOError):
                self.from_here.sendall(self.to_there.recv(1000))
                self.outgoing.read()

    def carried(self) -> bytes:
        """What was sent since the last call."""
        return self.from_here.recv(1 << 20)

    def send(self, *messages: bytes) -> bytes:
        for message in messages:
            self.outgoing.push([message])
        self.outgoing.write()
        return self.carried()

    def deliver(self, data: bytes) -> list[list[bytes]]:
        self.to_there.sendall(data)
        return self.incoming.read()

    def close(self) -> None:
        for sock in (self.outgoing.sock, self.incoming.sock, self.from_here, self.to_there):
            sock.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


RECORD_BYTES = link._PREFIX.size + 2 * 16 + len(b"secret rows")


def test_between_hosts_nothing_is_readable(wire: Wire) -> None:
    data = wire.send(b"secret rows", b"secret rows")
    assert len(data) == 2 * RECORD_BYTES
    assert b"secret" not in data
    assert data[:RECORD_BYTES] != data[RECORD_BYTES:]
    assert wire.deliver(data) == [[b"secret rows"], [b"secret rows"]]


@pytest.mark.parametrize("at", range(0, RECORD_BYTES, 7))
def test_between_hosts_a_changed_byte_ends_the_connection(wire: Wire, at: int) -> None:
    data = bytearray(wire.send(b"secret rows"))
    data[at] ^= 1
    with pytest.raises(link.LinkClosedError):
        wire.deliver(bytes(data))


def test_between_hosts_nothing_can_be_repeated_left_out_or_moved(wire: Wire) -> None:
    first, second = wire.send(b"secret rows"), wire.send(b"other words")
    with pytest.raises(link.LinkClosedError):
        wire.deliver(second)
    again = Wire()
    assert again.deliver(again.send(b"secret rows")) == [[b"secret rows"]]
    with pytest.raises(link.LinkClosedError):
        again.deliver(first)
    again.close()


def test_wake_ends_a_wait(open_transport: Open) -> None:
    a = open_transport("a")
    a.wake()
    start = time.monotonic()
    assert a.poll(30_000) == []
    assert time.monotonic() - start < 30


def test_the_directory_must_be_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError):
        Transport(tmp_path, "a", KEY)


def peer_main(directory: str, ready: Any) -> None:
    mine = Transport(directory, "peer", KEY)
    mine.send("a", [b"up"])
    ready.set()
    while True:
        mine.poll(1000)


def test_a_killed_peer_is_seen_at_once(tmp_path: Path) -> None:
    a = Transport(tmp_path / "sockets", "a", KEY)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=peer_main, args=(str(tmp_path / "sockets"), ready))
    process.start()
    assert ready.wait(20)
    assert pump(a) == [("peer", [b"up"])]
    assert a.connected("peer")
    assert process.pid is not None
    start = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    while not (lost := a.lost()) and time.monotonic() < start + 30:
        a.poll(30_000)
    seconds = time.monotonic() - start
    process.join()
    a.close()
    assert lost == ["peer"]
    assert seconds < 30, "its end woke nobody: a poll ran out"


def test_a_peer_that_went_in_the_middle_of_a_message_is_no_trouble_at_the_end(open_transport: Open) -> None:
    """Rows were on their way to it, and nothing else: one connection fails, the other goes with it."""
    a, b = open_transport("a"), open_transport("b")
    a.send("b", [b"open"], DATA)
    a.send("b", [b"open"], CONTROL)
    pump(b, a, until=2)
    for _ in range(20):
        a.send("b", [bytes(5_000_000)], DATA)
    for incoming in [*b._incoming["a"]]:
        incoming.sock.close()
    a.close()
    assert a.statistics()["sent"] == 22


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_who_took_a_name_over_keeps_it_when_the_other_one_ends(open_transport: Open, order: tuple[str, str]) -> None:
    """A controller that was stopped for long wakes up, finds itself deposed, and ends."""
    made = {"old": open_transport("a"), "new": open_transport("a")}
    b = open_transport("b")
    first, second = (made[name] for name in order)
    first.close()
    b.send("a", [b"x"])
    if first is made["old"]:
        assert pump(second, b) == [("b", [b"x"])]
    else:
        assert b.statistics()["dropped"] == 1, "nobody is to be found any more"


def test_without_descriptors_one_waits(open_transport: Open) -> None:
    a, b = open_transport("a"), open_transport("b")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        a.send("b", [b"lost"])
        os.close(taken.pop())
        a.send("b", [b"here"])  # the last one: nothing is left to accept it with
        b.poll(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)
    assert pump(b, a) == [("a", [b"here"])]
    assert a.statistics()["dropped"] == 1
