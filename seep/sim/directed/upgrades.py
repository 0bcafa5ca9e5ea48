"""Other code from one epoch on, whatever happens around it: the oracle knows from the journal which epoch is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from seep.errors import Misuse
from seep.model.ids import CONTROLLER, PartitionId
from seep.partition.contract import Upgrade
from seep.protocol.journal import Code
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, LightState, Route
from seep.sim.stage import Stage, chain
from seep.sim.upgraded import code_of


def _many_keys(salt: int, splits: int, rows: int, keys: int, routes: Mapping[str, Route]) -> LightIntake:
    """So many that not all of them change between two checkpoints."""
    return LightIntake(salt, splits, rows, 997, routes)


def _codes(stage: Stage) -> tuple[Code, ...]:
    return stage.world.controller.journal.codes.get("a", ())


def _upgraded(stage: Stage, times: int = 1) -> Callable[[], bool]:
    return lambda: stage.world.nodes[CONTROLLER].alive and len(_codes(stage)) == times


def _play(stage: Stage, times: int = 1) -> None:
    stage.play_through()
    demand(len(_codes(stage)) == times, f"upgraded {len(_codes(stage))} times, not {times}: {stage.given_up()}")


@scenario
def upgrade_while_it_runs() -> None:
    """Two partitions, one far behind the other; then once more, and back to the code before."""
    stage = Stage(chain(400, {"a": 2}), checkpoint_ms=10.0)
    stage.at(35.0, lambda: setattr(stage.host("a/1"), "slowness_ms", 12.0))
    for number, at_ms in enumerate((40.0, 41.0, 120.0)):
        stage.upgrade(at_ms, "a", number)
    _play(stage, 3)


@scenario
def upgrade_of_one_that_came_back() -> None:
    """It has sent more than it remembers: what others have heard of the old code stays the old code's."""
    stage = Stage(chain(300), checkpoint_ms=60.0)
    stage.at(100.0, lambda: stage.crash("a/0"))
    stage.upgrade(100.5, "a")
    _play(stage)


@scenario
def upgrade_beside_a_zombie() -> None:
    """The one before it goes on with the old code, and so does who listens to it, until he hears of the upgrade."""
    stage = Stage(chain(400), suspect_ms=60.0)

    def isolate() -> None:
        for other in ("s/0", "out/0"):
            stage.cut(CONTROLLER, stage.host(other).name, 200.0, both=False)
        stage.cut(CONTROLLER, stage.host("a/0").name, 220.0)

    stage.at(40.0, isolate)
    stage.upgrade(102.0, "a")
    _play(stage)


@scenario
def upgrade_beside_two_zombies() -> None:
    """Old rows still go through two that are given up, to one who has not heard of it."""
    stage = Stage(chain(400, deep=True), workers=4, suspect_ms=60.0, spare_workers=2)

    def isolate() -> None:
        for other in ("s/0", "out/0"):
            stage.cut(CONTROLLER, stage.host(other).name, 200.0, both=False)
        for zombie in ("a/0", "b/0"):
            stage.cut(CONTROLLER, stage.host(zombie).name, 220.0)

    stage.at(40.0, isolate)
    stage.upgrade(102.0, "a")
    _play(stage)


@scenario
def upgraded_one_falls_back_past_the_upgrade() -> None:
    """Its newest checkpoint is torn, the one before it is of the old code: that runs again up to its last epoch."""
    stage = Stage(chain(300), checkpoint_ms=20.0)
    store = stage.world.store

    def crash() -> None:
        store.damage(PartitionId("a", 0))
        stage.crash("a/0")

    stage.upgrade(60.0, "a")
    stage.when(_upgraded(stage), lambda: stage.at(1.0, crash))
    _play(stage)


@scenario
def upgraded_one_is_restored() -> None:
    """From increments: none of them builds on what the old code has saved."""
    stage = Stage(chain(400, s=_many_keys), checkpoint_ms=6.0, increments=100)
    stage.upgrade(40.0, "a")
    for after_ms in (14.0, 60.0):
        stage.when(_upgraded(stage), partial(stage.at, after_ms, partial(stage.crash, "a/0")))
    _play(stage)


@scenario
def copy_from_before_the_upgrade() -> None:
    """What the old code had reached, and what was lost with it, comes back out of a memory after the upgrade."""
    stage = Stage(chain(600), checkpoint_ms=10.0, copies_bytes=1 << 20, credit_epochs=100, retry_ms=40.0)
    world, store, a = stage.world, stage.world.store, PartitionId("a", 0)
    left: list[int] = []

    def lose() -> None:
        """The newest checkpoint is torn; its copy cannot be reached in time."""
        left.append(store.points(a)[0].epoch)
        store.damage(a)
        generation, holder = world.controller.journal.entries[a].generation, stage.host("s/0").name
        stage.crash("a/0")

        def placed() -> bool:
            return world.controller.journal.entries[a].generation != generation

        stage.when(placed, lambda: stage.cut(holder, world.controller.journal.entries[a].worker, 60.0), 0.05)
        stage.upgrade(0.5, "a")

    # The sink hears nothing of what is lost.
    stage.at(60.0, lambda: stage.cut(stage.host("a/0").name, stage.host("out/0").name, 400.0))
    stage.at(103.0, lose)
    stage.when(_upgraded(stage), partial(stage.crash, "a/0"), 0.05)
    _play(stage)
    demand(_codes(stage)[0].first <= left[0], f"{_codes(stage)}: nothing that was reached, up to {left}, was lost")


@scenario
def refused_upgrade() -> None:
    """The new code cannot take what one of two partitions remembers: the old code goes on, and saves all of it."""
    stage = Stage(chain(400, {"a": 2}), checkpoint_ms=6.0, increments=4)
    code = code_of("a", 0)
    known = stage.world.upgrades[code]

    def fit(state: LightState, now_ms: int) -> LightState:
        if any(bucket >= 2048 for bucket, _, _ in state.entries):
            raise Misuse("no place for it")
        return LightState(known.fit(state, now_ms).entries)

    stage.world.upgrades[code] = Upgrade(known.node, fit)
    stage.upgrade(40.0, "a")
    told = stage.world.controller.given_up
    for partition in ("a/0", "a/1"):
        stage.when(lambda: bool(told), partial(stage.at, 12.0, partial(stage.crash, partition)))
    _play(stage, 0)
    demand(list(told.values()) == ["given up: no place for it"], f"whoever asked was told {told}")


@scenario
def upgrade_right_after_a_split() -> None:
    """The partition that was split finishes its last epochs with the old code, and nobody has heard of them."""
    stage = Stage(chain(400), checkpoint_ms=10.0)
    stage.scale(40.0, "a", 2)

    def upgrade() -> None:
        stage.upgrade(0.0, "a")
        stage.cut(stage.host("a/0").name, stage.host("out/0").name, 60.0, both=False)
        # Of its end it has heard by then, of the upgrade it has not.
        stage.at(1.0, lambda: stage.cut(CONTROLLER, stage.host("a/0").name, 40.0, both=False))

    stage.when(lambda: len(stage.world.controller.journal.live("a")) == 2, upgrade, 0.05)
    _play(stage)


@scenario
def upgrade_waits_for_a_split() -> None:
    """One of an operator at a time: the new ones have begun epochs that nobody has heard of."""
    stage = Stage(chain(400), checkpoint_ms=10.0)
    stage.scale(40.0, "a", 2)
    stage.upgrade(41.0, "a")

    def split() -> None:
        for new in ("a/1", "a/2"):
            stage.cut(stage.host(new).name, stage.host("out/0").name, 60.0, both=False)
        stage.host("a/0").asleep_until = stage.world.now_ms + 25.0

    stage.when(lambda: len(stage.world.controller.journal.live("a")) == 2, split, 0.05)
    _play(stage)


@scenario
def split_right_after_an_upgrade() -> None:
    """The parts begin from what the old code has saved."""
    stage = Stage(chain(400), checkpoint_ms=200.0)
    stage.upgrade(40.0, "a")
    stage.when(_upgraded(stage), partial(stage.scale, 0.0, "a", 3))
    _play(stage)


@scenario
def controller_dies_in_an_upgrade() -> None:
    """Before its last epoch is named, and after: the next one goes on with it."""
    for named in (False, True):
        stage = Stage(chain(300, {"a": 2}))
        stage.upgrade(40.0, "a")

        def comes_by(stage: Stage = stage, named: bool = named) -> bool:
            replaces = stage.world.controller.journal.replaces
            return any(r.code and bool(r.at) == named for r in replaces)

        stage.when(comes_by, partial(stage.restart_controller, 20.0), every_ms=0.05)
        _play(stage)
