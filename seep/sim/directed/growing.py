"""Sources whose splits become more, sources that have more partitions than splits, and what is kept of those gone."""

from __future__ import annotations

from functools import partial

from seep.control.requests import ScaleTo
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, Supply, Windowed
from seep.sim.stage import Stage, chain


def _growing(partitions: int, idle_ms: int | None = None) -> tuple[Stage, Supply]:
    supply = Supply()
    supply.grows = True
    intake = partial(LightIntake, supply=supply, idle_ms=idle_ms)
    stage = Stage(chain(400, {"s": partitions}, s=intake, a=Windowed))
    stage.at(240.0, lambda: supply.end(2, 6))
    return stage, supply


@scenario
def split_appears_and_its_reader_dies() -> None:
    """At every moment around its birth; who reads it next goes on where the log says, or gives birth to it itself."""
    for partitions in (1, 2):
        for offset in range(0, 12, 3):
            stage, supply = _growing(partitions)
            stage.at(60.0, lambda supply=supply: supply.later.extend((2, 3)))  # type: ignore[misc]
            stage.at(60.0 + offset, lambda stage=stage: stage.crash("s/0"))  # type: ignore[misc]
            stage.play_through()


@scenario
def splits_appear_while_the_source_is_scaled() -> None:
    for offset in range(-12, 13, 3):
        stage, supply = _growing(1)
        stage.scale(80.0, "s", 3)
        stage.scale(180.0, "s", 2)
        for at_ms, split in ((80.0 + offset, 2), (180.0 + offset, 3), (181.0 + offset, 7 << 33)):
            stage.at(at_ms, lambda supply=supply, split=split: supply.later.append(split))  # type: ignore[misc]
        stage.play_through()
        demand(len(stage.world.controller.journal.live("s")) == 2, "it was not scaled")


@scenario
def silent_new_split_holds_no_time_back_for_long() -> None:
    """It is waited for like any other that has not been read, until it is idle; time never goes back."""
    stage, supply = _growing(2, idle_ms=10)
    marks: list[int] = []

    def silent() -> None:
        supply.later.append(2)
        supply.paused.add(2)

    def look() -> None:
        if stage.find("a/0") is not None:
            marks.append(stage.operator("a/0").moment.watermark)

    stage.at(60.0, silent)
    stage.at(200.0, supply.paused.clear)
    stage.at(100.0, look)
    stage.at(150.0, lambda: demand(stage.operator("a/0").moment.watermark > marks[0], "it holds the others back"))
    stage.play_through(look)
    demand(marks == sorted(marks), "time went back")


@scenario
def more_partitions_than_splits() -> None:
    """Those that have none have ended at once; the source can still be scaled, down and up again."""
    stage = Stage(chain(600))
    stage.scale(40.0, "s", 4)
    counts: list[int] = []
    for at_ms, count in ((120.0, 1), (200.0, 2)):
        stage.scale(at_ms, "s", count)
        stage.at(at_ms + 70.0, lambda: counts.append(len(stage.world.controller.journal.of("s"))))
    stage.play_through()
    demand(counts == [1, 2], f"it had {counts} partitions, and those that are over")


@scenario
def ended_partition_beside_one_that_is_behind() -> None:
    """One has ended in an epoch that the other has not begun: the new one begins behind both."""
    supply = Supply()
    supply.ends = {0: 200, 1: 60}
    stage = Stage(chain(400, {"s": 2}, s=partial(LightIntake, supply=supply)), workers=6, suspect_ms=1_000.0)

    def sleep() -> None:
        node = stage.host("s/0")
        node.asleep_until = stage.world.now_ms + 120.0

    def ended() -> bool:
        found = stage.find("s/1")
        return found is not None and bool(getattr(stage.partition("s/1"), "ended", False))

    stage.at(50.0, sleep)
    stage.when(ended, lambda: stage.world.request(ScaleTo("s", 1)))
    stage.play_through()
    demand(len(stage.world.controller.journal.live("s")) == 1, "it was not replaced")


@scenario
def what_has_gone_is_forgotten() -> None:
    """A flow that is scaled for weeks must not grow by what is kept of each partition and change there ever was."""
    stage = Stage(chain(1_200), workers=4)
    for number in range(6):
        stage.scale(40.0 + 60.0 * number, "s" if number % 2 else "a", 2 - number // 2 % 2)
    stage.at(480.0, lambda: demand(not _kept(stage), f"kept: {_kept(stage)}"))
    stage.play_through()
    demand(stage.world.controller.journal.next_replace >= 6, "it was not scaled")


def _kept(stage: Stage) -> list[object]:
    """Of partitions and changes that are in no journal any more."""
    controller = stage.world.controller
    there, pending = controller.journal.entries, {replace.number for replace in controller.journal.replaces}
    found: list[object] = [one for one in controller.since if one not in pending]
    found += [one for one in controller.slot_since if one not in there]
    for node in stage.world.live_workers():
        assert isinstance(node.machine, Worker)
        for one in node.machine.partitions.values():
            if not isinstance(one, SourcePartition):
                found += [sender for _, sender in one.inputs.digests if sender not in there]
    return found
