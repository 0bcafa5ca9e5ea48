"""A worker's process: named for good, looked at and signalled if it is on this host, told to leave if it is not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Any, NamedTuple

from seep.errors import Retry
from seep.model.ids import CONTROLLER
from seep.protocol import wire
from seep.protocol.messages import Leave
from seep.runtime.heartbeat import beside
from seep.runtime.hosts import this_host
from seep.runtime.job import JobDirectory, process_began

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "MIMALLOC_PURGE_DELAY": "2000",
}
"""One processing thread to a slot, and the same iteration order in every process. Arrow keeps memory for two seconds
before it gives it back: the next epoch wants as much again, and fresh pages took a third of a join's time."""
ENDING_SECONDS = 5.0
LEAVING_SECONDS = 15.0


class Process(NamedTuple):
    number: int
    began: int

    @classmethod
    def of(cls, card: dict[str, Any]) -> Process:
        """Of a registered worker. One on another host is never alive here: its number names somebody else."""
        return cls(card["process"], card["began"] if card["host"] == this_host() else 0)

    def alive(self) -> bool:
        return self.began != 0 and process_began(self.number) == self.began

    def signal(self, signal_number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.number, signal_number)


def end_workers(job: JobDirectory) -> None:
    """End those that an earlier controller of this job has left running, and wait until they are gone."""
    cards = job.registered()
    left = [Process.of(card) for card in cards.values()]
    for process in left:
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + ENDING_SECONDS
    while any(process.alive() for process in left) and time.monotonic() < deadline:
        time.sleep(0.01)
    _dismiss(job, {worker: card for worker, card in cards.items() if card["host"] != this_host()})
    for worker in cards:
        job.unregister(worker)


def kill_elsewhere(job: JobDirectory, worker: str) -> bool:
    """SIGKILL a worker on another host, by its own hand; False: it does not hear, or cannot be reached."""
    voice = job.transport(CONTROLLER, listens=False)
    order, peer = wire.encode(Leave(worker, at_once=True)), beside(worker)
    deadline = time.monotonic() + ENDING_SECONDS
    gone = False
    while not gone and time.monotonic() < deadline:
        if not voice.connected(peer):
            voice.send(peer, order)
        voice.poll(50)
        gone = peer in voice.lost()
    voice.close()
    return gone


def _dismiss(job: JobDirectory, elsewhere: dict[str, dict[str, Any]]) -> None:
    """Mostly they have ended with their scheduler; one that still writes would be fenced, but not what it spills."""
    if not (elsewhere := {worker: card for worker, card in elsewhere.items() if _listens(card)}):
        return
    voice = job.transport(CONTROLLER, listens=False)
    deadline = time.monotonic() + LEAVING_SECONDS
    while elsewhere and time.monotonic() < deadline:
        for worker in elsewhere:
            voice.send(worker, wire.encode(Leave(worker)))
        voice.poll(200)
        elsewhere = {worker: card for worker, card in elsewhere.items() if _listens(card)}
    voice.close()
    for worker, card in elsewhere.items():
        where = f"process {card['process']} of host {card['host_name']} ({card['address']})"
        raise Retry(f"worker {worker} of an earlier run does not end: {where}; end it and try again")


def _listens(card: dict[str, Any]) -> bool:
    """A process that lives serves its metrics."""
    try:
        socket.create_connection((card["address"], card["metrics_port"]), 1.0).close()
    except OSError:
        return False
    return True
