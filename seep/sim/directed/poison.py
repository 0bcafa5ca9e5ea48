"""Rows that kill whoever runs them are found and left out; no other row ever is, whatever dies when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from seep.control.deaths import HOPELESS
from seep.control.requests import ScaleTo
from seep.model.ids import Generation
from seep.partition.contract import Reading
from seep.sim.deadly import LETTER, Deadly, DeadlyChained, DeadlyIntake, DeadlyOutlet
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, Row
from seep.sim.oracle import committed
from seep.sim.stage import Stage, chain
from seep.sim.world import World

BAD: Row = LightIntake(5, 2, 80, 40, routes={}).row(1, 43)
"""A row in the middle of what the stage's source has, and not the first of its epoch."""
DEATHS = 5
"""Three make a row suspect; two more, noted on it, condemn it."""


def is_bad(row: Row) -> bool:
    return row[1:] == BAD[1:]


def harmless(row: Row) -> bool:
    return False


class BadIntake(DeadlyIntake):
    deadly = staticmethod(is_bad)


class SlowBadIntake(BadIntake):
    """Has to ask somebody first: in each life of its process it has nothing for a while."""

    asked = 0

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        self.asked += 1
        if until is None and self.asked < 40:
            return None
        return super().read(split, position, until, limit_rows, now_ms)


def _operator(deadly: Deadly = is_bad, rows: int = 160) -> Stage:
    return Stage(chain(rows, a=partial(DeadlyChained, keys=17, deadly=deadly)))


def _crash_all(world: World) -> None:
    for node in world.live_workers():
        world.crash(node.name)


def _letters(stage: Stage) -> int:
    rows = committed(stage.world.store, "out").values()
    return sum(row[0] == LETTER for found in rows for _, row in found)


def _poisons(stage: Stage) -> int:
    return len(stage.world.controller.journal.poisons)


def _found(stage: Stage, within: int = DEATHS) -> None:
    stage.play_through()
    demand(_poisons(stage) == 1, f"{_poisons(stage)} rows are left out")
    deaths = stage.world.counts["died of a row"]
    demand(DEATHS <= deaths <= within, f"found after {deaths} deaths")
    said = [what for _, what in stage.world.controller.decisions if what.startswith("POISON")]
    demand(len(said) == 1, "nobody was told")


@scenario
def row_that_kills_is_left_out() -> None:
    stage = _operator()
    _found(stage)
    demand(_letters(stage) == 1, f"{_letters(stage)} letters of it")


@scenario
def row_that_kills_what_comes_back_in_parts_is_left_out() -> None:
    """Before it has saved anything, and after: deaths are counted either way."""
    for checkpoint_ms in (1e9, 20.0):
        graph = chain(160, a=partial(DeadlyChained, keys=17, deadly=is_bad))
        stage = Stage(graph, parts=2, checkpoint_ms=checkpoint_ms)
        _found(stage, within=2 * DEATHS)


@scenario
def row_that_kills_its_source_is_left_out() -> None:
    """Before its epoch has a number: the row is counted from where the last one that was cut ends."""
    stage = Stage(chain(160, s=BadIntake), checkpoint_ms=1e9)
    world, again = stage.world, list[float]()

    def crash_later() -> None:  # the source reads the epoch again by its log
        again.append(world.now_ms)
        stage.at(12.0, lambda: _crash_all(world))

    stage.when(lambda: _poisons(stage) == 1, crash_later)
    _found(stage, within=2 * DEATHS)  # some of its epochs end before the row: then it is counted from there
    demand(bool(again), "it was never read again")


@scenario
def row_that_kills_a_source_that_is_slow_to_begin_is_left_out() -> None:
    """Empty epochs, some more in each life, are no progress, and the row is the same one after them."""
    stage = Stage(chain(160, s=SlowBadIntake), checkpoint_ms=1e9)
    _found(stage, within=2 * DEATHS)


@scenario
def row_that_kills_is_left_out_by_whoever_comes_after() -> None:
    """Split, killed and merged: each of them replays without it."""
    stage = Stage(chain(400, a=partial(DeadlyChained, keys=17, deadly=is_bad)), checkpoint_ms=60.0)
    world = stage.world

    def change() -> None:
        world.request(ScaleTo("a", 3))
        stage.at(40.0, lambda: _crash_all(world))
        stage.at(300.0, lambda: world.request(ScaleTo("a", 1)))

    stage.when(lambda: _poisons(stage) == 1, change)
    stage.play_through()
    demand(_poisons(stage) == 1, f"{_poisons(stage)} rows are left out")


def _killed_after_its_rows(stage: Stage, times: int) -> None:
    """Killed again and again, each time when it has just run the last row there is."""
    kills: list[float] = []

    def watch() -> None:
        if len(kills) < times and stage.find("a/0") is not None:
            operator = stage.operator("a/0")
            if operator.running and operator.epoch >= 6:
                kills.append(stage.world.now_ms)
                stage.crash("a/0")

    stage.play_through(watch)
    demand(len(kills) == times, f"only {len(kills)} kills")
    demand(_poisons(stage) == 0, "a row that does no harm is left out")
    suspected = max(e.deaths for journal in stage.world.store.journals for e in journal.entries.values())
    demand(suspected > DEATHS, "nothing was suspected")


@scenario
def kills_on_one_epoch_accuse_nobody() -> None:
    _killed_after_its_rows(_operator(harmless, 400), HOPELESS - 5)


@scenario
def row_that_kills_once_stays() -> None:
    """After many kills that were not its doing."""
    kills: list[Row] = []
    last: list[World] = []

    def deadly(row: Row) -> bool:
        suspected = last and any(e.deaths > DEATHS for e in last[0].controller.journal.entries.values())
        if suspected and not kills:
            kills.append(row)
            return True
        return False

    stage = _operator(deadly, 400)
    last.append(stage.world)
    _killed_after_its_rows(stage, HOPELESS - 10)
    demand(len(kills) == 1, "it never killed")


@scenario
def row_that_kills_now_and_then_stays() -> None:
    """Every second time that it is run, between kills that were not its doing: a row is condemned that does nothing
    else."""
    runs: list[Row] = []
    last: list[World] = []

    def deadly(row: Row) -> bool:
        suspected = last and any(e.deaths > DEATHS for e in last[0].controller.journal.entries.values())
        if suspected and len(runs) < 6 and row == (runs or [row])[0]:
            runs.append(row)
            return len(runs) % 2 == 1
        return False

    stage = _operator(deadly, 400)
    last.append(stage.world)
    _killed_after_its_rows(stage, HOPELESS - 10)
    demand(len(runs) == 6, f"it was run {len(runs)} times")


def _gone_otherwise(crash: Callable[[World, str], None]) -> None:
    """Dies thrice by itself; from then on something else happens whenever it comes to the row."""
    stage = _operator()
    world = stage.world

    def died(name: str) -> None:
        if world.counts["died of a row"] <= 3:
            world.crash(name)
        else:
            crash(world, name)

    world.died = died
    stopped = stage.play()
    demand(_poisons(stage) == 0, "a row is left out of which nobody has died")
    demand(f"died {HOPELESS} times" in stopped, f"stopped: {stopped}")


@scenario
def silence_accuses_nobody() -> None:
    _gone_otherwise(lambda world, name: world.crash(name, None))


@scenario
def asked_kills_accuse_nobody() -> None:
    _gone_otherwise(lambda world, name: world.crash(name, asked=True))


@scenario
def closed_connections_accuse_nobody() -> None:
    _gone_otherwise(lambda world, name: world.crash(name, told=False))


@scenario
def row_that_did_no_harm_stays() -> None:
    """Its epoch was taken and seen downstream; then it kills. To leave it out would make two truths."""
    armed: list[bool] = []

    def deadly(row: Row) -> bool:
        return bool(armed) and is_bad(row)

    graph = chain(160, a=partial(DeadlyChained, keys=17, deadly=deadly))
    stage = Stage(graph, checkpoint_ms=1e9)
    world = stage.world

    def arm() -> None:
        armed.append(True)
        stage.crash("a/0")

    def watch() -> None:
        if world.controller.journal.stopping:
            armed.clear()

    stage.when(lambda: max(committed(world.store, "out"), default=0) > 30, arm)
    stopped = stage.play(watch)
    demand("it cannot be left out" in stopped, f"stopped: {stopped}")
    demand(_poisons(stage) == 0, "it is left out")


@scenario
def row_that_kills_between_other_deaths_is_left_out() -> None:
    """Every second process dies before it comes to the row."""
    stage, lives = _operator(), set[Generation]()
    world = stage.world

    def watch() -> None:
        node = stage.find("a/0")
        if node is None or not world.counts["died of a row"] or _poisons(stage):
            return
        operator = stage.operator("a/0")
        if operator.entry.generation not in lives and not operator.running:
            lives.add(operator.entry.generation)
            if len(lives) % 2:
                world.crash(node.name)

    stage.play_through(watch)
    demand(_poisons(stage) == 1, f"{_poisons(stage)} rows are left out")
    demand(len(lives) > 3, "nothing came between")


class BadOutlet(DeadlyOutlet):
    deadly = staticmethod(lambda row: row[2] == BAD[2])


@scenario
def call_that_kills_its_sink_is_named() -> None:
    """No row of it can be left out, and nothing after it may be shown: the flow stops long before it is given up."""
    stage = Stage(chain(160, out=BadOutlet))
    stopped = stage.play()
    demand("died again and again in this call" in stopped, f"stopped: {stopped}")
    deaths = stage.world.counts["died of a row"]
    demand(deaths == DEATHS, f"found after {deaths} deaths")
