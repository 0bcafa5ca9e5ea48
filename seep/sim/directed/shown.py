"""What sinks show outside when that is slow: a key's rows in their order, whoever shows them."""

from __future__ import annotations

from itertools import pairwise

from seep.control.deaths import NEAR, SUSPECT_AFTER
from seep.model.ids import Generation, PartitionId
from seep.protocol.effects import Append, FenceStore, Publish, Published, ReadLog
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightOutlet
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
def sinks_without_an_epoch_show_nothing_and_go() -> None:
    """Nothing comes to a sink while it is split, merged and split again, and its outside is slow: those in between are
    sealed before they have taken anything, and still there together."""
    stage = Stage(chain(300), suspect_ms=1_000.0)
    publish, together = stage.world._publish, [0]

    def slowly(node: SimNode, effect: Publish) -> None:
        stage.world.at(SLOW_MS if effect.partition.number == 0 else 0.0, publish, node, effect)

    def watch() -> None:
        empty = [e for e in stage.world.controller.journal.of("out") if e.last < e.first]
        together[0] = max(together[0], len(empty))

    stage.world._publish = slowly  # type: ignore[method-assign]
    stage.at(50.0, lambda: setattr(stage.host("s/0"), "asleep_until", 200.0))
    for at_ms, count in ((60.0, 2), (80.0, 1), (100.0, 2)):
        stage.scale(at_ms, "out", count)
    stage.play_through(watch)
    demand(together[0] == 3, f"{together[0]} that took nothing were there together")


@scenario
def what_could_not_be_shown_is_no_end() -> None:
    """The outside of a sink refuses the last rows for good: the flow has not ended but failed."""
    stage = Stage(chain(120))
    publish, refused = stage.world._publish, "out/0: the outside takes no more"

    def show(node: SimNode, effect: Publish) -> None:
        if effect.ended:
            stage.at(0.1, lambda: stage.world._deliver(node, Published(effect.partition, -1, failure=refused)))
        else:
            publish(node, effect)

    stage.world._publish = show  # type: ignore[method-assign]
    demand(stage.play() == refused, "it has ended as if all had been shown")


class OnceOutlet(LightOutlet):
    repeats = False


@scenario
def at_most_once_shows_nothing_twice() -> None:
    """A sink dies again and again, after a commit, before or after what was committed is shown: that is lost, or was
    shown once. Nothing else is lost."""
    stage = Stage(chain(400, out=OnceOutlet), suspect_ms=1_000.0)
    publish = stage.world._publish
    shown: list[tuple[PartitionId, int]] = []
    deaths: set[int] = set()

    def show(node: SimNode, effect: Publish) -> None:
        dies = effect.record is not None and effect.epoch % 7 == 3 and effect.epoch not in deaths
        deaths.update([effect.epoch] if dies else [])
        if dies and effect.epoch % 2:
            stage.world.crash(node.name)
        if node.alive:
            publish(node, effect)
            shown.extend([(effect.partition, effect.epoch)] if effect.record is not None else [])
        if dies and node.alive:
            stage.world.crash(node.name)

    stage.world._publish = show  # type: ignore[method-assign]
    stage.play_through()
    log = stage.world.store.history[PartitionId("out", 0)]
    committed = [(PartitionId("out", 0), epoch) for epoch, (_, record) in log if record is not None]
    demand(len(deaths) > 3, "it hardly ever died")
    demand(len(set(shown)) == len(shown), "something was shown twice")
    demand(set(shown) <= set(committed), "something was shown that is not committed")
    lost = len(committed) - len(shown)
    demand(0 < lost <= 2 * len(deaths), f"of {len(committed)} epochs {lost} were lost by {len(deaths)} crashes")


@scenario
def committing_is_no_progress_of_a_sink_that_dies_publishing() -> None:
    """Each start commits some more epochs before it dies of the same one: it is suspected all the same."""
    stage = Stage(chain(2_000), suspect_ms=1_000.0)
    world, publish = stage.world, stage.world._publish
    committed: list[int] = []

    def show(node: SimNode, effect: Publish) -> None:
        if effect.epoch >= 20 and len(committed) < SUSPECT_AFTER:
            deadly = stage.world.store.history[effect.partition]
            stage.at(300.0, lambda: die(node, deadly[-1][0]))
        elif node.alive:
            publish(node, effect)

    def die(node: SimNode, epoch: int) -> None:
        if node.alive:
            committed.append(epoch)
            world.crash(node.name)

    world._publish = show  # type: ignore[method-assign]
    suspected: list[int] = []

    def is_suspected() -> bool:
        return any(entry.deaths >= SUSPECT_AFTER for entry in world.controller.journal.of("out"))

    stage.when(is_suspected, lambda: suspected.append(1))
    stage.play_through()
    further = min(later - before for before, later in pairwise(committed))
    demand(further > NEAR * 2**SUSPECT_AFTER, f"it has hardly committed more: {committed}")
    demand(bool(suspected), "it was never suspected")


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
