"""The eye of the controller: reads the metrics every second, asks the policies, and has changes made.

A thread of its own beside the controller's loop, which it only gives requests to: metrics that are slow or gone hold up
nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from seep.control.governor import Decision, Governor, Guards
from seep.control.observed import Observed, observe
from seep.control.requests import ScaleTo
from seep.runtime.controller import ControllerHost
from seep.runtime.readers import Reader, Unreadable

EVERY_SECONDS = 1.0
WINDOW_SECONDS = 4.0
FRESH_SECONDS = 3.0
PATIENCE_SECONDS = 5.0
"""With a look that is under way when the flow has ended."""
MEMORY_SHARE = 0.25
"""Of this machine's memory, in the state of one partition: while it is replaced, others hold as much again."""


class Watch:
    def __init__(self, host: ControllerHost, reader: Reader, guards: Guards | None = None) -> None:
        nodes = host.machine.graph.nodes
        self.host = host
        self.reader = reader
        self.governor = Governor(
            host.machine.graph,
            {name: node.policy for name, node in nodes.items() if node.policy is not None},
            guards
            or Guards(settle_seconds=WINDOW_SECONDS + EVERY_SECONDS, partition_bytes=MEMORY_SHARE * memory_bytes()),
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep-watch", daemon=True)

    def start(self) -> None:
        if self.governor.operators:
            self._thread.start()

    def close(self) -> None:
        """Waits for the look that is under way, but not for a policy that never comes back from it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            names = ", ".join(self.governor.operators)
            print(f"seep: the policy of {names} has not come back; it is left behind", file=sys.stderr)
        self.reader.close()

    def decisions(self) -> list[Decision]:
        """Oldest first."""
        return list(self.governor.decisions)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_SECONDS) and not self.host.ended.is_set():
            try:
                self._look()
            except Exception as error:
                # A defect of ours: the flow goes on as it is, and `seep explain` shows why nothing is scaled any more.
                self.governor.fail(time.time(), error)

    def _look(self) -> None:
        view = self.host.view
        for decision in self.governor.look(self._observed(time.time), view.journal, view.shortage):
            if decision.changes:
                self.host.request(ScaleTo(decision.operator, decision.after))

    def _observed(self, clock: Callable[[], float]) -> Observed:
        try:
            samples = self.reader.read(WINDOW_SECONDS)
        except Unreadable as problem:
            return Observed(clock(), {}, str(problem))
        return observe(self.host.machine.graph, self.host.view.journal, samples, clock(), FRESH_SECONDS)


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
