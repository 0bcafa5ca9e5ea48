"""Servers that tests start for themselves, on free loopback ports, and stop."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

STARTING_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class RedisServer:
    """A real Redis that keeps what it has answered; it can be killed, stopped for a while and started again."""

    def __init__(self, home: Path, options: Mapping[str, str] | None = None) -> None:
        """`options`: its own, in place of those that make it durable."""
        self.home = home
        self._options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip("no redis-server here; install it with: apt-get install -y redis-server")
        self.home.mkdir(parents=True, exist_ok=True)
        durable = {"bind": "127.0.0.1", "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        place = {"port": str(self.port), "dir": str(self.home), "daemonize": "no"}
        options = {**(self._options or {**durable, "save": ""}), **place}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        with (self.home / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([found, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + STARTING_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.home / "redis.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def empty(self) -> None:
        """Killed, and all that it has written deleted."""
        self.kill()
        shutil.rmtree(self.home)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20.0)
            self._process = None
