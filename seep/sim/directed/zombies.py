"""Cut off from the controller, or asleep too long, but at work: nothing of it may count."""

from __future__ import annotations

from seep.control.requests import ScaleTo
from seep.model.ids import CONTROLLER, PartitionId
from seep.partition.worker import Worker
from seep.protocol import wire
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain


def _isolate(stage: Stage, partition: str, for_ms: float) -> None:
    stage.cut(CONTROLLER, stage.host(partition).name, for_ms)


@scenario
def zombie_source() -> None:
    """A source that nobody told goes on cutting beside its successor, twice."""
    stage = Stage(chain(400))

    def isolate() -> None:
        zombie = stage.host("s/0")
        for node in stage.world.live_workers():
            # Out of step, so that now the one and now the other is first at the store.
            node.slowness_ms = 0.0 if node is zombie else 1.3
        _isolate(stage, "s/0", 140.0)

    stage.at(40.0, isolate)
    stage.at(240.0, isolate)
    stage.play_through()


@scenario
def zombie_operator() -> None:
    """An operator that nobody told goes on, and its source has not heard either, so trims by its word."""
    stage = Stage(chain(300), checkpoint_ms=5.0)

    def isolate() -> None:
        stage.cut(CONTROLLER, stage.host("s/0").name, 130.0, both=False)
        _isolate(stage, "a/0", 150.0)

    stage.at(40.0, isolate)
    stage.play_through()


@scenario
def zombie_is_counted() -> None:
    """Everything that a zombie sends after its receiver has heard of its successor is refused, and counted."""
    stage = Stage(chain(300), suspect_ms=60.0)
    receiver: list[Worker] = []

    def isolate() -> None:
        machine = stage.host("out/0").machine
        assert isinstance(machine, Worker)
        receiver.append(machine)
        # Its source does not hear of it either, so the zombie goes on getting rows.
        stage.cut(CONTROLLER, stage.host("s/0").name, 120.0, both=False)
        _isolate(stage, "a/0", 150.0)

    stage.at(40.0, isolate)
    stage.play_through()
    demand(receiver[0].statistics().get("dropped_fenced", 0) > 0, "nothing of the zombie was refused")


@scenario
def zombie_sink_in_a_handover() -> None:
    """A sink wakes up after its successor has handed over: what it still appends must not count."""
    # It does not ask again on waking up, so it takes what was sent to it before.
    stage = Stage(chain(300), retry_ms=1_000.0)
    stage.at(40.0, lambda: setattr(stage.host("out/0"), "asleep_until", 240.0))
    stage.scale(60.0, "out", 2)
    stage.play_through()


@scenario
def zombie_controller() -> None:
    """An old controller's plans arrive after its successor's: no worker goes back."""
    stage = Stage(chain(300))
    world = stage.world
    known: dict[str, tuple[int, int]] = {}

    def supersede() -> None:
        old = world.nodes[CONTROLLER]
        old.name = "controller before"
        for worker in world.live_workers():
            world.link_free_ms[old.name, worker.name, wire.CONTROL] = world.now_ms + 80.0
        world.start_controller()
        world._deliver(old, ScaleTo("a", 2))
        world.at(1.0, lambda: setattr(old, "alive", False))

    def watch() -> None:
        for node in world.live_workers():
            assert isinstance(node.machine, Worker)
            journal = node.machine.desk.journal
            now = (journal.term, journal.version)
            demand(known.get(node.name, now) <= now, f"{node.name} went back from {known.get(node.name)} to {now}")
            known[node.name] = now

    stage.at(40.0, supersede)
    stage.scale(60.0, "a", 3)
    stage.play_through(watch)


@scenario
def fence_raised_then_controller_gone() -> None:
    """The store already refuses a partition that is alive; the controller that meant to replace it is gone."""
    stage = Stage(chain(300), parts=2)
    victim = PartitionId("a", 0)
    stage.at(40.0, lambda: _isolate(stage, "a/0", 90.0))

    def refused() -> bool:
        fence = stage.world.store.fences.get(victim)
        return fence is not None and fence > stage.world.controller.journal.entries[victim].generation

    stage.when(refused, lambda: stage.restart_controller(50.0))
    stage.play_through()
