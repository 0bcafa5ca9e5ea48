"""Inside one epoch for longer than a worker may be silent: at work is not dead, stopped is, and so is stuck."""

from __future__ import annotations

from functools import partial

from seep.model.epoch import Moment
from seep.model.ids import Generation, PartitionId
from seep.partition.worker import Worker
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import Chained, Item
from seep.sim.stage import Stage, chain

SUSPECT_MS = 80.0
A = PartitionId("a", 0)


def _generation(stage: Stage) -> Generation:
    return stage.world.controller.journal.entries[A].generation


def _said(stage: Stage, what: str) -> list[float]:
    return [ms for ms, text in stage.world.controller.decisions if what in text]


@scenario
def long_epoch_is_not_a_death() -> None:
    """Five times as long as silence is borne: nobody is replaced."""
    stage = Stage(chain(400), suspect_ms=SUSPECT_MS)
    before: list[Generation] = []

    def occupy() -> None:
        before.append(_generation(stage))
        stage.world.occupy(stage.host("a/0"), 5 * SUSPECT_MS)

    stage.at(40.0, occupy)
    stage.play_through()
    demand(not _said(stage, "silent"), "a worker at work was taken for dead")
    demand({_generation(stage)} == set(before), "its partition was started again")
    demand(bool(_said(stage, "goes on for")), "nobody was told")


@scenario
def stopped_inside_a_long_epoch() -> None:
    """A worker that says it is busy and then is stopped is found by its silence, as fast as any."""
    stage = Stage(chain(400), suspect_ms=SUSPECT_MS)

    def occupy() -> None:
        node = stage.host("a/0")
        stage.world.occupy(node, 1_000.0)
        stage.at(100.0, lambda: setattr(node, "asleep_until", 900.0))

    stage.at(40.0, occupy)
    stage.play_through()
    found = _said(stage, "silent")
    demand(bool(found) and found[0] < 140.0 + 1.5 * SUSPECT_MS, f"found at {found}, stopped at 140 ms")


@scenario
def stuck_loop_is_replaced() -> None:
    """A loop that never comes back is not waited for without end, however well its heart beats."""
    stage = Stage(chain(400), suspect_ms=SUSPECT_MS, stuck_ms=300.0)
    stage.at(40.0, lambda: stage.world.occupy(stage.host("a/0"), 1e9))
    stage.play_through()
    demand(len(_said(stage, "silent")) == 1, "it was waited for, or given up more than once")


@scenario
def busy_worker_that_was_given_up_gets_nothing() -> None:
    """Stopped, given up, and awake again inside the same long epoch: it does not count before its loop is back."""
    stage = Stage(chain(600), suspect_ms=SUSPECT_MS)
    world, given_up = stage.world, list[str]()

    def occupy() -> None:
        node = stage.host("a/0")
        world.occupy(node, 5 * SUSPECT_MS)
        node.asleep_until = world.now_ms + 2 * SUSPECT_MS
        given_up.append(node.name)

    def watch() -> None:
        if given_up and 40.0 + 1.5 * SUSPECT_MS < world.now_ms < 40.0 + 5 * SUSPECT_MS:
            demand(given_up[0] not in world.controller.heard, "it counts before its loop is back")

    stage.at(40.0, occupy)
    stage.play_through(watch)
    demand(world.now_ms > 40.0 + 4 * SUSPECT_MS, "over before it could show")


@scenario
def who_is_at_work_shows_beside_the_loop() -> None:
    """While an operator's code runs, and not after: who it is, and the last epoch that it has finished."""
    said: set[tuple[PartitionId, int] | None] = set()

    def working_on() -> set[tuple[PartitionId, int] | None]:
        machines = [node.machine for node in stage.world.live_workers()]
        return {machine.working_on() for machine in machines if isinstance(machine, Worker)}

    class Watched(Chained):
        def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
            said.update(working_on())
            return super().fold(moment, items)

    def set_clocks() -> None:
        for node in stage.world.live_workers():
            if isinstance(node.machine, Worker):
                node.machine.clock = lambda: stage.world.now_ms

    stage = Stage(chain(160, a=partial(Watched, keys=17)))
    stage.at(2.0, set_clocks)
    stage.at(60.0, lambda: demand(working_on() == {None}, f"nobody is at work, but {working_on()}"))
    stage.play_through()
    finished = sorted(work[1] for work in said if work is not None and work[0] == A)
    demand(len(finished) > 10 and finished == list(range(finished[0], finished[-1] + 1)), f"{finished}")
