"""Cuts between the processes of a job: a proxy in user space before each one's socket.

A process listens at a path of the job's directory; the proxy moves that socket aside, listens in its place and passes
bytes on, both ways, unread: the handshake goes through from end to end. A cut holds back what is on its way or hangs up
in the middle of it. Only connections that are made afterwards go through it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from pathlib import Path

PORTION_BYTES = 1 << 16
ASIDE = ".aside"


class Proxy:
    """Before one socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._aside = path.with_name(path.name + ASIDE)
        self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.rename(path, self._aside)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._short(path.name))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._held = threading.Event()
        self._reset = threading.Event()
        self._closed = threading.Event()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, name=f"seep-cut-{path.name[:8]}", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        return len(self._pairs) // 2

    def hold(self) -> None:
        """Nothing passes any more; nobody is told."""
        self._held.set()

    def release(self, hang_up: bool) -> None:
        """What was held goes on, or is lost with its connections."""
        if hang_up:
            self._reset.set()
        self._held.clear()

    def close(self) -> None:
        """Out of the way: who connects from now on finds the real socket again."""
        self._closed.set()
        self._thread.join()
        for sock in [*self._pairs, self._listener]:
            sock.close()
        self._selector.close()
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._aside, self.path)
        os.close(self._directory)

    def _short(self, name: str) -> str:
        # By the directory's descriptor: a socket's path may have 107 bytes only.
        return f"/proc/self/fd/{self._directory}/{name}"

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._reset.is_set():
                self._reset.clear()
                for sock in list(self._pairs):
                    self._hang_up(sock)
            if self._held.is_set():
                self._closed.wait(0.01)
                continue
            for key, _ in self._selector.select(0.02):
                if key.data is None:
                    self._accept()
                elif key.fileobj in self._pairs:
                    self._pass_on(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            near, _ = self._listener.accept()
            far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                far.connect(self._short(self._aside.name))
            except OSError:
                near.close()
                far.close()
                return
            for one, other in ((near, far), (far, near)):
                one.setblocking(True)
                self._pairs[one] = other
                self._selector.register(one, selectors.EVENT_READ, one)

    def _pass_on(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(PORTION_BYTES)
            if data:
                self._pairs[sock].sendall(data)
                return
        except OSError:
            pass  # either side is gone: so is the connection
        self._hang_up(sock)

    def _hang_up(self, sock: socket.socket) -> None:
        other = self._pairs.pop(sock, None)
        if other is None:
            return
        self._pairs.pop(other, None)
        for one in (sock, other):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(one)
            one.close()
