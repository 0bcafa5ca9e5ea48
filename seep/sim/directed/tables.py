"""Tables first: a source that waits while another one loads."""

from __future__ import annotations

from functools import partial

from seep.model.ids import FOREVER, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, LightOutlet, Windowed, by_key, local
from seep.sim.stage import Stage


def _two_sources() -> Graph:
    """t (loads) and s (waits, and would soon be idle) -> w -> out."""
    loading = partial(LightIntake, 5, 1, 14, 40, routes={"t>w": by_key})
    waiting = partial(LightIntake, 7, 1, 60, 40, routes={"s>w": by_key}, idle_ms=10)
    nodes = (
        Node("t", "source", loading, loads=True),
        Node("s", "source", waiting, turn=1),
        Node("w", "operator", partial(Windowed, routes={"w>out": local})),
        Node("out", "sink", LightOutlet),
    )
    edges = (Edge("t>w", "t", "w", 0), Edge("s>w", "s", "w", 1), Edge("w>out", "w", "out", 0))
    return Graph({node.name: node for node in nodes}, edges)


@scenario
def waiting_source_is_not_idle() -> None:
    """It announces empty epochs, and holds the watermark back for the rows it will have."""
    stage = Stage(_two_sources())
    stage.play_through()
    records = [record for _, record in stage.world.store.history[PartitionId("s", 0)]]
    empty = [record for record in records if all(known[1] is None for known in record["splits"].values())]
    demand(len(empty) > 4, "it did not wait")
    demand(not any(record["idle"] for record in empty), "it said that it was idle")


@scenario
def waiting_source_that_is_behind() -> None:
    """It slept while the Table was loaded, and has heard of no epoch: its first rows still come after the Table's."""
    stage = Stage(_two_sources(), suspect_ms=1_000.0, report_ms=2.0)

    def fall_behind() -> None:
        stage.cut(stage.host("w/0").name, stage.host("s/0").name, 400.0, both=False)
        stage.host("s/0").asleep_until = stage.world.now_ms + 150.0

    stage.at(8.0, fall_behind)
    stage.play_through()
    (begins,) = stage.world.controller.journal.begins
    demand(0 < begins < FOREVER, "nobody waited")
