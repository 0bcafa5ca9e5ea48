"""A thread beside the loop of a worker that tells the controller when the loop is inside one long piece of work.

It has a voice of its own, since one thread owns a transport. Whatever stops the process stops it, too: then there is
silence. So does code that never lets go of Python's lock (one call of a C function for seconds): it looks like a
process that was stopped, because from inside nobody can tell (docs/decisions/0009-busy-is-not-dead.md).

Where no signal comes from the controller's host, it is also the one who hears that this process is to be killed.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from seep.model.ids import CONTROLLER
from seep.partition.pulse import Pulse
from seep.partition.worker import Worker
from seep.protocol import wire
from seep.protocol.messages import Leave
from seep.runtime.clock import now_ms
from seep.runtime.transport import Transport

_BESIDE = "+"


def beside(worker: str) -> str:
    """The name under which a worker's heartbeat is known to other processes."""
    return worker + _BESIDE


def speaker(name: str) -> str:
    """The worker that speaks under this name, with its loop or beside it.

    >>> speaker("w1"), speaker(beside("w1"))
    ('w1', 'w1')
    """
    return name.removesuffix(_BESIDE)


class Heartbeat:
    def __init__(self, voice: Transport, machine: Worker) -> None:
        self.turn = 0
        """The loop counts its turns here."""
        self._voice = voice
        self._machine = machine
        self._pulse = Pulse(machine.worker)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="seep-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._voice.wake()
        self._thread.join()
        self._voice.close()

    def _beat(self) -> None:
        every_ms = self._machine.desk.settings.report_ms
        while not self._stopping.is_set():
            said = self._pulse.look(self.turn, self._machine.working_on(), now_ms())
            if said is not None:
                self._voice.send(CONTROLLER, wire.encode(said), wire.lane(said))
            self._wait(now_ms() + every_ms)

    def _wait(self, until_ms: float) -> None:
        while not self._stopping.is_set() and (left_ms := until_ms - now_ms()) > 0:
            for _, parts in self._voice.poll(left_ms):  # serves the handshake, and sees a controller go
                self._hear(parts)
            self._voice.lost()

    def _hear(self, parts: list[Any]) -> None:
        try:
            message = wire.decode(parts)
        except wire.ProtocolError:
            return
        if isinstance(message, Leave) and message.at_once:
            os.kill(os.getpid(), signal.SIGKILL)
