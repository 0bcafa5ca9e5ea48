"""Hosts of our own on this machine: network namespaces on a bridge, each with an address, a name, a view of the files.

They are hosts to seep as containers are: other interfaces, another loopback. The addresses are of the range that is
set apart for tests (RFC 2544); only this machine has them, and only as long as the test lasts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path


def possible() -> bool:
    """May we make some?"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"seep{os.getpid()}p"
    made = subprocess.run(["ip", "link", "add", probe, "type", "bridge"], capture_output=True, check=False)
    if made.returncode:
        return False
    subprocess.run(["ip", "link", "del", probe], check=True)
    return subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False).returncode == 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """So many hosts beside this one; `address` is this one's."""

    def __init__(self, count: int) -> None:
        number = os.getpid()
        self.bridge = f"seep{number}"
        self.net = f"198.18.{number % 250 + 1}"
        self.address = f"{self.net}.1"
        self.names = [f"{self.bridge}{'abcdefg'[n]}" for n in range(count)]
        self.addresses = [f"{self.net}.{n + 2}" for n in range(count)]
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("address", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", self.bridge, "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def on(self, host: int, hidden: Iterable[Path] = ()) -> list[str]:
        """Put before a command, it runs there; that host does not have what is `hidden`."""
        script = [f"hostname {self.names[host]}", *(f"mount -t tmpfs none '{path}'" for path in hidden), 'exec "$@"']
        inside = ["unshare", "--uts", "sh", "-ec", "\n".join(script), "sh"]
        return ["ip", "netns", "exec", self.names[host], *inside]

    def cut(self, host: int) -> None:
        """Pull its cable."""
        ip("link", "set", self.names[host], "down")

    def mend(self, host: int) -> None:
        ip("link", "set", self.names[host], "up")

    def close(self) -> None:
        for words in [("netns", "del", name) for name in self.names] + [("link", "del", self.bridge)]:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*words)
