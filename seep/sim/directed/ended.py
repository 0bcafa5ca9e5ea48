"""Who comes back late: after a source partition has ended long before the others, and after everything has."""

from __future__ import annotations

from functools import partial

from seep.partition.sink import SinkPartition
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


@scenario
def sink_that_dies_with_its_last_epoch_shows_all_of_it() -> None:
    """The last rows are in its log, nothing is left to take, and nobody was shown what a sink holds back until the
    end."""
    stage = Stage(chain(60), workers=4)

    def last_is_written() -> bool:
        if stage.find("out/0") is None:
            return False
        sink = stage.partition("out/0")
        assert isinstance(sink, SinkPartition)
        written = stage.world.store.history.get(sink.entry.partition, [])
        return sink.ended and sink.appending is not None and written[-1][0] == sink.appending[-1].epoch

    stage.when(last_is_written, lambda: stage.crash("out/0"), every_ms=0.05)
    stage.play_through()
    comes_back = sum("out/0" in what for _, what in stage.world.controller.decisions)
    demand(comes_back > 0, "the schedule missed its moment")
