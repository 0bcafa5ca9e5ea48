"""A source partition that is done long before the others: who comes back later must hear it from the buffer."""

from __future__ import annotations

from functools import partial

from seep.partition.source import SourcePartition
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, Supply
from seep.sim.stage import Stage, chain


@scenario
def restored_after_a_source_ended() -> None:
    """Its checkpoint is later than the last thing that the source ever said, and another receiver keeps that from
    being trimmed."""
    supply = Supply()
    supply.ends = {0: 400, 1: 30}
    flow = chain(400, {"s": 2, "a": 2}, s=partial(LightIntake, supply=supply))
    stage = Stage(flow, workers=6, checkpoint_ms=10_000.0, suspect_ms=1_000.0)

    def done() -> bool:
        if any(stage.find(name) is None for name in ("s/1", "a/0")):
            return False
        source = stage.partition("s/1")
        assert isinstance(source, SourcePartition)
        buffer = source.outputs.buffers["s>a"]
        return source.ended and bool(buffer.entries) and stage.operator("a/0").epoch > buffer.newest.epoch + 2

    def crash() -> None:
        stage.crash("a/0")

    def save() -> None:
        receiver = stage.operator("a/0")
        receiver.checkpoint()
        stage.when(lambda: bool(receiver.saver.durable), crash)

    stage.when(done, save)
    stage.play_through()
    comes_back = sum("a/0 restarts" in what or "a/0 comes back" in what for _, what in stage.world.controller.decisions)
    demand(comes_back > 0, "the schedule missed its moment")
