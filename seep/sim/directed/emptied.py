"""The store comes back empty, or what it has was torn while a copy in memory hid it."""

from __future__ import annotations

from collections.abc import Callable

from seep.model.ids import PartitionId
from seep.partition.worker import Worker
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain

PART = PartitionId("a", 0)


def _empty(then: Callable[[Stage], None], parts: int = 1) -> None:
    stage = Stage(chain(400), parts=parts)

    def empty() -> None:
        stage.world.store.wipe()
        then(stage)

    stage.at(90.0, empty)
    report = stage.play()
    demand("the store has lost" in report, f"went on: {report!r}")

    def all_know() -> bool:
        machines = [node.machine for node in stage.world.live_workers()]
        return all(isinstance(machine, Worker) and machine.desk.journal.stopping == report for machine in machines)

    demand(stage.world.run_until(all_know, stage.world.now_ms + 200.0), "not every worker was told")


@scenario
def emptied_store() -> None:
    """Nobody is killed: what runs notices at its next write."""
    _empty(lambda stage: None)


@scenario
def emptied_store_and_a_dead_worker() -> None:
    """Who starts again must not start from nothing."""
    for name in ("s/0", "a/0", "out/0"):
        for parts in (1, 2):
            _empty(lambda stage, name=name: stage.crash(name), parts)  # type: ignore[misc]


@scenario
def emptied_store_and_a_dead_controller() -> None:
    """A controller that finds no journal where there was one must not write a first one."""
    _empty(lambda stage: stage.restart_controller(5.0))


@scenario
def torn_checkpoint_hidden_by_a_copy() -> None:
    """The newest checkpoint is torn, and a copy in memory makes up for it. When the copies are gone, too, the store
    alone must do: nothing may have been built on the torn one."""
    for wait_ms in (15.0, 30.0, 45.0, 60.0):
        stage = Stage(chain(500), increments=40, checkpoint_ms=10.0, copies_bytes=1 << 28)

        def again(stage: Stage = stage) -> None:
            for node in stage.world.live_workers():
                assert isinstance(node.machine, Worker)
                node.machine.holder.chains.clear()
                node.machine.holder.bytes.clear()
            stage.crash("a/0")

        def tear(stage: Stage = stage, wait_ms: float = wait_ms, again: Callable[[], None] = again) -> None:
            demand(stage.world.store.damage(PART), "there is no second checkpoint")
            stage.crash("a/0")
            stage.at(wait_ms, again)

        stage.at(80.0, tear)
        stage.play_through()


@scenario
def log_that_a_new_source_begins_from_is_gone() -> None:
    """It cannot know where the old one ended: the flow stops, and says whose log it was."""
    stage = Stage(chain(400))

    def handed_over() -> bool:
        return len(stage.world.controller.journal.live("s")) == 2

    def lose() -> None:
        del stage.world.store.logs[PartitionId("s", 0)]

    stage.scale(60.0, "s", 2)
    stage.when(handed_over, lose, every_ms=0.05)
    report = stage.play()
    demand("the epoch log of s/0 is gone" in report, f"stopped with {report!r}")
