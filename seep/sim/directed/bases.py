"""The checkpoint that new partitions start from is damaged before they have their own: an older one must do."""

from __future__ import annotations

from seep.model.ids import PartitionId
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain

PART = PartitionId("a", 1)


def _older_base(checkpoint_ms: float, heard: bool, crash_ms: float = 150.0) -> Stage:
    """a/0 dies and comes back as two parts; their base is damaged, then the first part dies. `heard`: not before its
    receiver has heard it."""
    stage = Stage(chain(500, deep=True), workers=6, parts=2, checkpoint_ms=checkpoint_ms, increments=0)

    def young() -> bool:
        if stage.find("a/1") is None:
            return False
        part = stage.operator("a/1")
        return part.running and not part.saver.durable and (not heard or bool(part.outputs.cursors["a>b"]))

    def damage() -> None:
        base = stage.world.controller.journal.entries[PART].base
        demand(bool(base), "it has no base")
        stage.world.store.tear(*base[0])
        stage.crash("a/1")
        # Nothing reaches it for a moment, so that its first checkpoint is of where it starts.
        for number in () if heard else range(1, stage.world.spawned + 3):
            stage.cut(stage.host("s/0").name, f"w{number}", 20.0, both=False)

    stage.at(crash_ms, lambda: stage.crash("a/0"))
    stage.when(young, damage)
    return stage


@scenario
def parts_of_a_damaged_base() -> None:
    """What a part announces of epochs before its life differs with its base: nobody may hold that against it."""
    _older_base(40.0, heard=True, crash_ms=170.0).play_through()


@scenario
def first_checkpoint_older_than_the_base() -> None:
    """Its first own checkpoint is older than the base that the journal names: upstream must keep what follows it."""
    stage = _older_base(1.0, heard=False)

    def saved_early() -> bool:
        if stage.find("a/1") is None:
            return False
        part = stage.operator("a/1")
        named = stage.world.controller.journal.entries[PART].base_epoch
        return len(part.saver.durable) == 1 and part.saver.durable[0].epoch < named

    crashed: list[str] = []

    def crash() -> None:
        crashed.append(stage.host("a/1").name)
        stage.crash("a/1")

    stage.when(saved_early, lambda: stage.at(2.0, crash))
    stage.play_through()
    demand(bool(crashed), "the schedule missed its moment")
