"""An epoch of the whole flow is read, in flows whose rows go from sources to sinks: logs alone say where it stood."""

from __future__ import annotations

from functools import partial

from seep.control.requests import FixEpoch, ReleaseEpoch
from seep.model.ids import CONTROLLER
from seep.partition.contract import Edge, Graph, Node
from seep.sim.checks import Watch
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, LightOutlet, local
from seep.sim.stage import Stage

KEPT_MS = 150.0


def _straight() -> Graph:
    """s -> out, with nothing between them that would keep a checkpoint."""
    source = partial(LightIntake, 5, 2, 400, 40, routes={"s>out": local})
    nodes = {"s": Node("s", "source", source), "out": Node("out", "sink", LightOutlet)}
    return Graph(nodes, (Edge("s>out", "s", "out", 0),))


def _read(late_ms: float = 0.0) -> None:
    """Somebody reads an epoch for a while; `late_ms`: all hear of it so late, and have forgotten more by then."""
    stage = Stage(_straight(), checkpoint_ms=10.0, suspect_ms=1_000.0)
    world, kept, times = stage.world, list[float](), [0]

    def is_kept() -> bool:
        controller = world.controller
        at = controller.journal.fixed
        said = [controller.statuses.get(partition) for partition in controller.journal.entries]
        return at >= 0 and all(s is not None and s.fixed_epoch == at and s.epoch >= at for s in said)

    def read() -> None:
        kept.append(world.now_ms)
        stage.at(KEPT_MS, release)

    def release() -> None:
        demand(is_kept(), "it was let go while somebody read it")
        world.request(ReleaseEpoch(world.controller.journal.replaces[0].number))
        times[0] += 1
        if times[0] < 3:
            stage.at(40.0, fix)

    def fix() -> None:
        for node in world.live_workers() if late_ms else ():
            stage.cut(CONTROLLER, node.name, late_ms, both=False)
        world.request(FixEpoch())
        stage.when(is_kept, read)

    stage.at(60.0, fix)
    stage.play_through(Watch(world))
    demand(len(kept) == 3 and times[0] == 3, f"read {times[0]} times")
    demand(not world.controller.journal.replaces, "an epoch is still kept")
    logs = {str(partition): len(log) for partition, log in world.store.logs.items()}
    demand(max(logs.values()) < 200, f"nothing is forgotten any more: {logs}")


@scenario
def epoch_is_read_where_there_are_only_logs() -> None:
    _read()


@scenario
def who_hears_late_that_an_epoch_is_read_names_another() -> None:
    _read(late_ms=60.0)
