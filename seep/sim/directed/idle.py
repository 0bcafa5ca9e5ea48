"""Splits that fall silent: how they are spread over partitions must not show."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from seep.model.ids import PartitionId
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, Supply, Windowed
from seep.sim.stage import Stage, chain


def _idling(partitions: int) -> tuple[Stage, Supply]:
    supply = Supply()

    intake = partial(LightIntake, idle_ms=10, supply=supply)
    stage = Stage(chain(400, {"s": partitions}, s=intake, a=Windowed))
    stage.at(160.0, supply.paused.clear)
    stage.at(260.0, lambda: supply.end(2, 6))
    return stage, supply


@scenario
def idle_partition() -> None:
    """All splits of one source partition are idle: windows close by the others, and go on when it wakes up."""
    stage, supply = _idling(2)
    stage.at(60.0, lambda: supply.paused.add(1))
    before: list[int] = []
    stage.at(100.0, lambda: before.append(stage.operator("a/0").moment.watermark))
    stage.at(150.0, lambda: demand(stage.operator("a/0").moment.watermark > before[0], "the silent one holds it back"))
    stage.play_through()


@scenario
def everybody_idle() -> None:
    """Nobody sends: time stands still, and nothing that comes later is late for that."""
    for partitions in (1, 2):
        stage, supply = _idling(partitions)
        stage.at(60.0, lambda supply=supply: supply.paused.update((0, 1)))  # type: ignore[misc]
        stage.play_through()


@scenario
def source_that_slept_goes_on_where_the_others_are() -> None:
    """One of two stands still while the other one cuts as far as it may: it does not cut one by one what it missed."""
    stage = Stage(chain(600, {"s": 2}), workers=4, suspect_ms=1_000.0)
    stage.at(50.0, lambda: setattr(stage.host("s/1"), "asleep_until", 110.0))
    stage.play_through()
    epochs = [epoch for epoch, _ in stage.world.store.history[PartitionId("s", 1)]]
    longest = max(later - before for before, later in pairwise(epochs))
    demand(longest >= 4, f"it left out {longest - 1} epochs at most")
