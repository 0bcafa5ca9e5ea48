"""`seep.run`: a flow over bounded input, to its end.

Inline, the machines run in the simulator's world without faults, in virtual time: the same code as in workers, no
processes, no waiting. A source that says it never ends is refused at once; one that does not say so runs until it is
interrupted, or for a day of virtual time.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace as with_fields
from random import Random
from typing import Any

from seep.errors import Misuse, error_of
from seep.flow.build import Flow
from seep.flow.check import prepared, runnable
from seep.model.counts import whole
from seep.partition.worker import Worker
from seep.running.before import restored
from seep.running.job import start
from seep.running.result import Result, collected
from seep.sim.store import SimStore
from seep.sim.world import START_WALL_MS, World

INLINE_WORKERS = 1
DAY_MS = 86_400_000.0


def run(flow: Flow, on: str = "inline", **options: Any) -> Result:
    """Run a flow to the end of its input, and give back what it collected: a pyarrow.Table for each name.

    >>> import seep
    >>> flow = seep.Flow("evens")
    >>> numbers = flow.source("numbers", seep.MemorySource([{"n": n} for n in range(4)]))
    >>> numbers.filter(lambda row: row.n % 2 == 0).collect("evens")
    >>> seep.run(flow)["evens"].to_pylist()
    [{'n': 0}, {'n': 2}]

    ``on`` is ``"inline"`` (this process, in virtual time), ``"local"``, ``"spark"`` or ``"ray"``; the other options are
    those of `seep.start`, inline `restore`, `rename` and `drop` alone.
    """
    if on != "inline":
        job = start(flow, on=on, **options)
        try:
            return job.wait()
        finally:
            job.close()
    whole("workers", options.pop("workers", 1), 1)  # so that on= alone may differ; there are none
    for option in options:
        if option not in ("restore", "rename", "drop"):
            raise Misuse(f"run(on='inline') has no option {option!r}")
    graph = runnable(flow)
    for node in graph.nodes.values():
        if node.kind == "source" and getattr(getattr(node.make, "connector", None), "endless", False):
            raise Misuse(
                f"flow {flow.name!r}: source {node.name!r} never ends, and an inline run goes to the end of its input;"
                " give the source an end (rows=, no follow=), or run it on='local'"
            )
    settings = with_fields(flow.settings, spare_workers=0)
    graph, store = prepared(graph), SimStore()
    saved = restored(flow.name, graph, **options)
    if saved is not None:
        saved[0].prepare(graph, store, saved[1])
    # Where a savepoint has left off: of a source that gives so many rows a second it holds the time of its first.
    began_ms = max(START_WALL_MS, saved[0].now_ms if saved is not None else 0)

    def wall_ms() -> int:
        return began_ms + int(world.now_ms)

    world = World(graph, settings, Random(0), INLINE_WORKERS, jitter_ms=0.0, store=store, wall_ms=wall_ms)
    if not world.run_until(lambda: world.controller.finished or bool(world.controller.journal.stopping), DAY_MS):
        raise Misuse(f"flow {flow.name!r}: its input has not ended after a day of virtual time; run it on='local'")
    if world.controller.journal.stopping:
        raise error_of(world.controller.journal.stopping)
    dead_letters = _tell_dead_letters(world)
    return collected(graph, world.controller.journal, world.store.perform, dead_letters)


def _tell_dead_letters(world: World) -> int:
    """Of rows that became dead letters which no stream takes, one line for each operator; how many there were. An
    inline run has no state directory that would keep them."""
    refused: Counter[str] = Counter()
    errors: dict[str, str] = {}
    for node in world.live_workers():
        assert isinstance(node.machine, Worker)
        for partition in node.machine.partitions.values():
            code = getattr(partition, "logic", None) or getattr(partition, "intake", None)
            runner = getattr(code, "runner", None)
            if runner is not None:
                refused.update(runner.refused)
                for letter in runner.take_unclaimed():
                    errors.setdefault(letter["operator"], letter["error"])
    for operator, count in refused.items():
        many = "1 row became a dead letter" if count == 1 else f"{count} rows became dead letters"
        error = (errors.get(operator, "").splitlines() or [""])[0]
        print(f"{many} at {operator}: {error}; to keep them collect the .errors of its stream", file=sys.stderr)
    return refused.total()
