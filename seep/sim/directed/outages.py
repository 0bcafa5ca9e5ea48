"""The store, the clock of a node or a whole node is away, and nobody is told: silence must be enough."""

from __future__ import annotations

from random import Random

from seep.control.requests import ScaleTo, StopFlow
from seep.model.ids import CONTROLLER, Generation, PartitionId
from seep.protocol.effects import Append, FenceStore, ReadLog
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain
from seep.sim.store import SimStore


@scenario
def store_loses_its_tail() -> None:
    """The store crashes again and again, each time with a write that nobody has had an answer about."""
    stage = Stage(chain(400), checkpoint_ms=5.0)
    stage.scale(60.0, "a", 2)

    world = stage.world

    def crash() -> None:
        found = world.store.may_lose(world.now_ms)
        if found:
            world.crash_store(4.0)
        if world.now_ms < 400.0:
            stage.at(15.0 if found else 0.05, crash)

    stage.at(20.0, crash)
    stage.play_through()
    demand(world.store.lost_writes > 5, f"only {world.store.lost_writes} writes were lost")


@scenario
def disk_is_full_while_a_worker_dies() -> None:
    """Nothing can be written for long, the journal neither: it is one death however often it is tried, and what was
    asked for meanwhile happens once there is room."""
    stage = Stage(chain(400))
    world = stage.world

    def fill() -> None:
        world.store_full_until = world.now_ms + 600.0
        stage.crash("a/0")
        world.request(ScaleTo("a", 2))

    stage.at(60.0, fill)
    stage.at(200.0, lambda: world.request(ScaleTo("s", 2)))
    stage.play_through()
    controller = world.controller
    demand(controller.deaths.certain(controller.journal.live("s")[0]) is False, "a row is suspected")
    sizes = [len({e.partition for j in world.store.journals for e in j.live(name)}) for name in ("a", "s")]
    demand(sizes == [3, 3], f"what was asked for is forgotten: {sizes}")
    demand(not any("has taken over" in what for _, what in controller.decisions), f"{controller.decisions}")


@scenario
def flow_is_stopped_though_its_store_is_away() -> None:
    stage = Stage(chain(4_000))
    world = stage.world

    def stop() -> None:
        world.store_down_until = world.now_ms + 100.0
        world.request(StopFlow("stop"))

    stage.at(60.0, stop)
    stage.when(lambda: world.now_ms > 400.0, lambda: demand(stage.over(), "it goes on, and nobody will ask again"))
    demand(stage.play() == "stop", "it was not stopped")


@scenario
def what_was_read_is_not_lost() -> None:
    """The bench itself: a write is durable once an answer covers it, its own or a later one of the same partition."""
    source, generation = PartitionId("s", 0), Generation(1, 0)

    def survives(read_answered_ms: float, seed: int) -> bool:
        store = SimStore()
        store.perform(FenceStore(1, source, generation), 0.0, 1.0)
        store.perform(Append(2, source, generation, 1, {}), 2.0, 9.0)
        store.perform(ReadLog(3, source), 3.0, read_answered_ms)
        store.lose_tail(6.0, Random(seed))
        return bool(store.logs[source])

    demand(all(survives(5.0, seed) for seed in range(20)), "a write that somebody has read was lost")
    demand(not all(survives(9.0, seed) for seed in range(20)), "a write that nobody has read was never lost")


@scenario
def half_open_connections() -> None:
    """Each kind of partition dies once without a closed connection: it comes back all the same."""
    stage = Stage(chain(500), suspect_ms=40.0)
    for at_ms, name in ((40.0, "s/0"), (140.0, "a/0"), (240.0, "out/0")):
        stage.at(at_ms, lambda name=name: stage.world.crash(stage.host(name).name, None))  # type: ignore[misc]
    stage.play_through()
    silent = [what for _, what in stage.world.controller.decisions if "silent" in what]
    demand(len(silent) == 3, f"found by their silence: {silent}")


@scenario
def ticks_are_lost() -> None:
    """No timer fires anywhere for a while, in the middle of a split: messages alone must do no harm."""
    stage = Stage(chain(400))
    stage.scale(40.0, "a", 2)

    def hold() -> None:
        for node in [*stage.world.live_workers(), stage.world.nodes[CONTROLLER]]:
            node.no_tick_until = stage.world.now_ms + 60.0

    for at_ms in (42.0, 120.0, 200.0):
        stage.at(at_ms, hold)
    stage.play_through()
    demand(len(stage.world.controller.journal.live("a")) == 2, "it was not split")


@scenario
def flipped_bit_under_a_running_partition() -> None:
    """Full checkpoints only: a flipped bit in the newest is survived, at once or when newer ones were written."""
    for wait_ms in (0.0, 4.0, 30.0):
        stage = Stage(chain(300), increments=0, checkpoint_ms=10.0)

        def flip(stage: Stage = stage, wait_ms: float = wait_ms) -> None:
            demand(stage.world.store.damage(PartitionId("a", 0)), "there is no second checkpoint")
            stage.at(wait_ms, lambda: stage.crash("a/0"))

        stage.at(80.0, flip)
        stage.play_through()
        demand(not stage.world.store.beyond, "more than one copy was lost")


@scenario
def damaged_chain_is_reported() -> None:
    """A flipped bit below all newer increments: either it is never needed, or the flow stops and says why."""
    stage = Stage(chain(400), increments=40, checkpoint_ms=10.0)
    stage.at(80.0, lambda: demand(stage.world.store.damage(PartitionId("a", 0)), "there is no second checkpoint"))
    stage.at(140.0, lambda: stage.crash("a/0"))
    report = stage.play()
    demand(bool(report) and PartitionId("a", 0) in stage.world.store.beyond, f"went on: {report!r}")


@scenario
def replace_that_takes_too_long_is_begun_anew() -> None:
    """Its new partition hangs until the Replace is given up: whoever asked for it gets it all the same."""
    stage = Stage(chain(900), at_most_ms=60.0, suspect_ms=1_000.0)

    def starting() -> bool:
        return stage.find("a/1") is not None

    def hang() -> None:
        stage.host("a/1").asleep_until = stage.world.now_ms + 100.0

    stage.scale(60.0, "a", 2)
    stage.when(starting, hang, every_ms=0.05)
    stage.play_through()
    demand(len(stage.given_up()) == 1, f"given up: {stage.given_up()}")
    demand(len(stage.world.controller.journal.live("a")) == 2, "it was not split")


@scenario
def hand_over_that_takes_too_long_is_begun_anew() -> None:
    """One of two that are to hand over hangs: the other one must not wait for it for ever."""
    stage = Stage(chain(900, {"s": 2}), workers=4, at_most_ms=60.0, suspect_ms=1_000.0)

    def begun() -> bool:
        return any(replace.operator == "s" for replace in stage.world.controller.journal.replaces)

    def hang() -> None:
        stage.host("s/1").asleep_until = stage.world.now_ms + 200.0

    stage.scale(60.0, "s", 1)
    stage.when(begun, hang, every_ms=0.05)
    stage.play_through()
    demand(bool(stage.given_up()), "it was waited for")
    demand(len(stage.world.controller.journal.live("s")) == 1, "they were not merged")


@scenario
def controller_that_slept_blames_nobody() -> None:
    """It hears nothing for longer than a silent worker is waited for, because it slept: nobody is started again."""
    stage = Stage(chain(600), suspect_ms=40.0)
    controller = stage.world.nodes[CONTROLLER]
    for at_ms in (60.0, 200.0):
        stage.at(at_ms, lambda: setattr(controller, "no_tick_until", stage.world.now_ms + 70.0))
        for name in ("s/0", "a/0", "out/0"):
            stage.at(at_ms, lambda name=name: stage.cut(stage.host(name).name, CONTROLLER, 69.0))  # type: ignore[misc]
    stage.play_through()
    blamed = [what for _, what in stage.world.controller.decisions if "silent" in what]
    demand(not blamed, f"{blamed}")


@scenario
def store_fails_at_the_first_journal() -> None:
    """Whether it was written is not known: asked, the store has none, and it is written again. Nothing was lost."""
    stage = Stage()

    def fail() -> None:
        stage.world.store_down_until = stage.world.now_ms + 10.0

    stage.when(lambda: stage.world.controller.wanted is not None, fail, every_ms=0.02)
    stage.play_through()
    demand(stage.world.store.journals[0].version == 1, "the first journal is not the first")
