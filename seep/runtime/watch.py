"""The eye of the controller: reads the metrics every second, asks the policies, and has changes made.

A thread of its own beside the controller's loop, which it only gives requests to: metrics that are slow or gone hold up
nothing.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from dataclasses import replace

from seep.control.decisions import Decision
from seep.control.governor import Governor, Guards
from seep.control.observed import Observed, Samples, observe
from seep.control.requests import ScaleTo
from seep.runtime.clock import steady_seconds
from seep.runtime.controller import ControllerHost
from seep.runtime.readers import EVERY_SECONDS, Reader, Unreadable

WINDOW_SECONDS, WINDOW_SAMPLES = 4.0, 4
"""Decisions are made from the last seconds, or from as many as it takes for so many samples."""
FRESH_SECONDS, FRESH_SAMPLES = 3.0, 3
"""A sample that is older, or than so many should have come after, is of something that is gone."""
PATIENCE_SECONDS = 5.0
"""With a policy that is asked; also when the flow has ended."""
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
        self._window_seconds = WINDOW_SECONDS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seep-watch", daemon=True)

    def start(self) -> None:
        if self.governor.operators:
            self._thread.start()

    def close(self) -> None:
        """Waits for the look that is under way, but not for a policy that never comes back from it."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            names = ", ".join(self.governor.operators)
            print(f"seep: the policy of {names} has not come back; it is left behind", file=sys.stderr)
        self.reader.close()

    def decisions(self) -> list[Decision]:
        """Oldest first; while a policy does not come back, that it does not."""
        since, policy, names = self.governor.asking or (math.inf, "", [])
        now, live = steady_seconds(), self.host.view.journal.live
        if now - since < PATIENCE_SECONDS:
            names = []
        held = f"policy: {policy} has not answered for {now - since:.0f} s"
        sizes = {name: len(live(name)) for name in names}
        silent = [Decision(now, name, count, count, "no decision", held) for name, count in sizes.items()]
        return [*self.governor.decisions, *silent]

    def _run(self) -> None:
        due = time.monotonic() + EVERY_SECONDS
        while not self._stopped.wait(max(0.0, due - time.monotonic())) and not self.host.ended.is_set():
            due = following(due, EVERY_SECONDS, time.monotonic())
            try:
                self._look()
            except Exception as error:
                # A defect of ours: the flow goes on as it is, and `seep explain` shows why nothing is scaled any more.
                self.governor.fail(steady_seconds(), error)

    def _look(self) -> None:
        self._follow()
        samples, problem = self._read()
        # Only now, and once: reading may take a while, and what is decided must be about the partitions measured.
        view = self.host.view
        if problem:
            seen = Observed(0.0, {}, problem)
        else:
            fresh_seconds = max(FRESH_SECONDS, FRESH_SAMPLES * self.reader.interval_seconds)
            seen = observe(self.host.machine.graph, view.journal, samples, self.reader.now(), fresh_seconds)
        # The samples' clock may be set; how long something is held back goes by one that is not.
        seen = replace(seen, at=steady_seconds())
        if seen.unknown and not problem and self.reader.told:
            whose = f"in the last {self._window_seconds:g} s of {self.reader.told}"
            seen = replace(seen, unknown=f"{seen.unknown}; {whose}")
        for decision in self.governor.look(seen, view.journal, view.shortage):
            if decision.changes:
                self.host.request(ScaleTo(decision.operator, decision.after))

    def _follow(self) -> None:
        """Who scrapes less often needs a longer window, and decides later: after a change it must have passed."""
        window_seconds = max(WINDOW_SECONDS, WINDOW_SAMPLES * self.reader.interval_seconds)
        longer_seconds = window_seconds - self._window_seconds
        if longer_seconds:
            guards, self._window_seconds = self.governor.guards, window_seconds
            self.governor.guards = replace(guards, settle_seconds=guards.settle_seconds + longer_seconds)

    def _read(self) -> tuple[Samples, str]:
        """The samples, or why there are none."""
        try:
            return self.reader.read(self._window_seconds), ""
        except Unreadable as problem:
            return {}, str(problem)


def following(due: float, every: float, now: float) -> float:
    """When the next look is due. Looks are at fixed times, however long each takes: the window holds as many samples
    as it should. Those that a long one has missed are not made up for.

    >>> following(10.0, 1.0, 10.4), following(10.0, 1.0, 12.4)
    (11.0, 13.0)
    """
    return due + every * (1 + max(0.0, now - due) // every)


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
