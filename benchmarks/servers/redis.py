"""A Redis of its own that keeps what it has answered; it can be killed, paused, emptied and started again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.servers.kafka import ServerError, free_ports

START_SECONDS = 20.0
STOP_SECONDS = 20.0
DURABLE = {"bind": "127.0.0.1", "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class RedisServer:
    """``with RedisServer(home) as redis: redis.url``: answers from the first line to the last."""

    def __init__(self, home: Path, options: Mapping[str, str] | None = None) -> None:
        """`options`: its own, in place of those that make it durable."""
        self.home = home
        self._options = options
        self.port = free_ports(1)[0]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Until it answers. Data and address are those of the last time."""
        found = shutil.which("redis-server")
        if found is None:
            raise ServerError("no redis-server here; install it with: apt-get install -y redis-server")
        self.home.mkdir(parents=True, exist_ok=True)
        place = {"port": str(self.port), "dir": str(self.home), "daemonize": "no"}
        options = {**(self._options or {**DURABLE, "save": ""}), **place}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        log_path = self.home / "redis.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen([found, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerError(f"redis-server has ended: {log_path.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise ServerError(f"redis-server does not answer within {START_SECONDS:.0f} s")
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

    def put_aside(self) -> None:
        """Killed, and all that it has written taken away: started now, it is empty."""
        self.kill()
        self.home.rename(self._aside)

    def put_back(self) -> None:
        """Killed, and what it had before `put_aside` is there again."""
        self.kill()
        shutil.rmtree(self.home)
        self._aside.rename(self.home)

    @property
    def _aside(self) -> Path:
        return self.home.with_name(f"{self.home.name}-aside")

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_SECONDS)
            self._process = None
