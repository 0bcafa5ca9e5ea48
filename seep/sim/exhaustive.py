"""``python -m seep.sim.exhaustive --crashes 2``: every placement of one or two crashes over the named protocol steps.

The world has no chance in it: three workers, one split, a hand-over of the source, an upgrade, one merge. A placement
is "crash this node the first time it is in this step"; the second is looked for from the first on, in the run that has
the first. So the placements are a tree, and each path in it is one run. Crashing at every single event instead would be
mostly the same few states again, hundreds of times.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from os import cpu_count

from seep.model.ids import CONTROLLER
from seep.sim.interrupted import controller_steps, named_steps
from seep.sim.oracle import Violation
from seep.sim.stage import Stage, chain
from seep.sim.world import SimNode, World

Placement = tuple[str, str]
"""(node, step)"""

BACK_AFTER_MS = 15.0
"""How long a crashed controller stays away."""


@dataclass
class Path:
    crashes: tuple[Placement, ...]
    violation: str = ""
    next: tuple[Placement, ...] = ()
    """Every placement that came by after the last crash."""
    missed: bool = False
    """The last placement did not come by: nothing was tried."""
    steps: set[str] = field(default_factory=set)


def steps_of(world: World, node: SimNode) -> list[str]:
    return controller_steps(world.controller) if node.name == CONTROLLER else list(named_steps(node))


def run_path(crashes: tuple[Placement, ...], parts: int, discover: bool = True) -> Path:
    stage = Stage(chain(120), parts=parts, checkpoint_ms=15.0)
    world = stage.world
    stage.scale(15.0, "a", 2)
    stage.scale(45.0, "s", 2)
    stage.upgrade(60.0, "a")
    stage.scale(75.0, "a", 1)
    path, waiting = Path(crashes), list(crashes)
    found: dict[Placement, None] = {}

    def watch() -> None:
        while waiting:
            node = world.nodes.get(waiting[0][0])
            if node is None or not node.alive or waiting[0][1] not in steps_of(world, node):
                return
            waiting.pop(0)
            if node.name == CONTROLLER:
                stage.restart_controller(BACK_AFTER_MS)
            else:
                world.crash(node.name)
        if discover:
            for node in world.nodes.values():
                if node.alive:
                    found.update(((node.name, step), None) for step in steps_of(world, node))

    try:
        stage.play_through(watch)
    except Violation as violation:
        path.violation = str(violation)
    path.next, path.missed = tuple(found), bool(waiting)
    return path


def run_below(crashes: tuple[Placement, ...], parts: int, depth: int) -> list[Path]:
    """This path and everything below it, down to that many more crashes."""
    path = run_path(crashes, parts, discover=depth > 0)
    paths = [path]
    if depth > 0 and not path.violation:
        for placement in path.next:
            paths += run_below((*crashes, placement), parts, depth - 1)
    path.next = ()
    return paths


def run_all(crashes: int, parts: int, processes: int) -> list[Path]:
    """All placements of up to that many crashes."""
    root = run_path((), parts)
    if root.violation or not crashes:
        return [root]
    firsts = [(placement,) for placement in root.next]
    if processes == 1:
        below = [run_below(first, parts, crashes - 1) for first in firsts]
    else:
        with ProcessPoolExecutor(processes) as pool:
            below = list(pool.map(run_below, firsts, [parts] * len(firsts), [crashes - 1] * len(firsts)))
    return [root, *(path for paths in below for path in paths)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m seep.sim.exhaustive", description=__doc__)
    parser.add_argument("--crashes", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1, help="into how many a dead partition comes back")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    paths = run_all(options.crashes, options.parts, options.processes)
    bad = [path for path in paths if path.violation]
    for path in bad:
        print(f"VIOLATION {' then '.join(f'{node} in {step!r}' for node, step in path.crashes)}: {path.violation}")
    steps = {step for path in paths for _, step in path.crashes}
    print(
        f"{len(paths)} placements of up to {options.crashes} crashes over {len(steps)} steps in"
        f" {time.monotonic() - began:.1f} s, {len(bad)} violations, {sum(path.missed for path in paths)} missed"
    )
    return 1 if bad or any(path.missed for path in paths) else 0


if __name__ == "__main__":
    sys.exit(main())
