"""Which host this is, at which address others reach it, and where the processes of a job on other hosts listen.

Two processes are on one host if they share process ids and the loopback interface: then they may signal each other and
meet by Unix sockets. Containers of one machine are hosts of their own by that rule. Processes of several hosts leave a
small file each beside their sockets. Nothing in it is trusted: who listens there has to prove the job key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
from functools import cache
from pathlib import Path

from seep.model.ids import Place

LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.1"
"""An address for documentation: the way to it is the way to any other network. Nothing is sent there."""
_SILENT_SECONDS = 10
"""A connection whose other end acknowledges nothing for so long is closed: after a cut that lasted, connecting anew is
faster than waiting for the kernel's next try."""


@cache
def this_host() -> str:
    """The same in two processes if they are on one host."""
    spaces = [os.stat(f"/proc/self/ns/{space}").st_ino for space in ("pid", "net")]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.blake2b(f"{boot} {spaces}".encode(), digest_size=8).hexdigest()


def this_place() -> Place:
    """Where this process runs. Workers of one executor have one parent, and go with it."""
    return Place(this_host(), str(os.getppid()))


def address_towards(host: str) -> str:
    """This host's address on the way to another one (none: to any); there may be no way but to itself.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    try:
        family, *_, place = socket.getaddrinfo(host or ELSEWHERE, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # of a datagram socket: finds the way, sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK  # no name, no way


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


class Whereabouts:
    """Who listens where, for the processes of a job on several hosts."""

    def __init__(self, directory: int, address: str) -> None:
        """`directory`: a descriptor of where the sockets are; `address`: this host's, as the others reach it."""
        self._directory = directory
        self._address = address
        self._card = ""

    def listen(self, name: str) -> socket.socket:
        """Listen for other hosts, and tell them where."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind((self._address, 0))
        listener.listen(256)
        card = {"host": this_host(), "address": self._address, "port": listener.getsockname()[1]}
        self._card = json.dumps(card)
        written = self._path(f"{name}.{secrets.token_hex(4)}")
        with open(written, "w") as file:
            file.write(self._card)
        os.rename(written, self._path(name))
        return listener

    def forget(self, name: str) -> None:
        """We listen no longer; somebody else of our name may."""
        with contextlib.suppress(FileNotFoundError):
            if Path(self._path(name)).read_text() == self._card:
                os.unlink(self._path(name))

    def find(self, name: str) -> tuple[str, int] | None:
        """Where to connect to it; None: it is on this host. `LookupError`: it is nowhere."""
        try:
            with open(self._path(name)) as file:
                card = json.loads(file.read())
        except (OSError, ValueError) as error:
            raise LookupError(name) from error
        return None if card["host"] == this_host() else (card["address"], card["port"])

    def _path(self, name: str) -> str:
        return f"/proc/self/fd/{self._directory}/{name}.address"


def network_socket(address: str) -> socket.socket:
    """To connect to another host with."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    prepare_network(sock)
    return sock


def prepare_network(sock: socket.socket) -> None:
    """Small messages go at once; an end that was cut off is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_SECONDS * 1000)
