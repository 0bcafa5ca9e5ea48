"""What sinks show outside when that is slow: a key's rows in their order, whoever shows them."""

from __future__ import annotations

from seep.model.ids import Generation, PartitionId
from seep.protocol.effects import Append, FenceStore, Publish, ReadLog
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain
from seep.sim.store import SimStore
from seep.sim.world import SimNode

SLOW_MS = 120.0


@scenario
def split_sink_shows_in_order() -> None:
    """The outside of a sink is slow when it is split: its successors have their first epochs committed long before its
    last ones are shown."""
    stage = Stage(chain(300))
    publish, shown = stage.world._publish, []

    def show(node: SimNode, effect: Publish) -> None:
        shown.append(effect.partition.number)
        publish(node, effect)

    def slowly(node: SimNode, effect: Publish) -> None:
        stage.world.at(SLOW_MS if effect.partition.number == 0 else 0.0, show, node, effect)

    stage.world._publish = slowly  # type: ignore[method-assign]
    stage.scale(60.0, "out", 2)
    stage.play_through()
    demand(len(set(shown)) == 3, "the sink was not split")
    demand(sorted(shown, key=bool) == shown, "a successor has shown its epochs before those that came earlier")


@scenario
def torn_commit_is_tried_again() -> None:
    """Of a commit of several epochs a crash keeps any first part; the same commit, tried again, adds the rest."""
    who, generation = PartitionId("out", 0), Generation(1, 1)
    records = [(epoch, ((epoch, 0), b"%d" % epoch)) for epoch in (3, 4, 7, 8)]
    for kept in range(len(records) + 1):
        store = SimStore()
        store.perform(FenceStore(0, who, generation))
        for epoch, record in records[:kept]:
            store.perform(Append(0, who, generation, epoch, record))
        *before, last = records
        store.perform(Append(0, who, generation, *last, tuple(before)))
        reply = store.perform(ReadLog(0, who))
        demand(reply is not None and reply.value == records, f"with {kept} of them kept the log holds others")
