"""Copies of checkpoints in upstream memory, at the wrong moment."""

from __future__ import annotations

from seep.partition.worker import Worker
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain

ROOM = 1 << 20


def _restored_from_memory(stage: Stage) -> int:
    machines = [node.machine for node in stage.world.live_workers()]
    return sum(m.statistics().get("restored_from_memory", 0) for m in machines if isinstance(m, Worker))


@scenario
def restored_from_memory() -> None:
    """Without the store's copies: what an upstream worker remembers is enough."""
    stage = Stage(chain(300), copies_bytes=ROOM)

    def lose() -> None:
        saved = stage.world.store.checkpoints[stage.operator("a/0").entry.partition]
        for version in saved:
            stage.world.store.tear(stage.operator("a/0").entry.partition, version)
        stage.crash("a/0")

    stage.at(90.0, lose)
    stage.play_through()
    demand(_restored_from_memory(stage) == 1, "it was not restored from memory")


@scenario
def copy_that_missed_a_version() -> None:
    """The last versions never reached the holder; its older copy would need what upstream has trimmed."""
    stage = Stage(chain(300), copies_bytes=ROOM, checkpoint_ms=5.0)
    stage.at(50.0, lambda: _stop_copies(stage))
    stage.at(100.0, lambda: stage.crash("a/0"))
    stage.play_through()


def _stop_copies(stage: Stage) -> None:
    protection = stage.operator("a/0").protection
    protection.holder = ""
    protection._choose = lambda: False  # type: ignore[method-assign]


@scenario
def copy_newer_than_the_base() -> None:
    """A merge's base is not the newest version any more: the newer one is of another epoch."""
    stage = Stage(chain(500, {"a": 2}), workers=4, copies_bytes=ROOM, checkpoint_ms=5.0, increments=40)

    def shadow() -> str:
        journal = stage.world.controller.journal
        return next((journal.entries[new].worker for replace in journal.replaces for new in replace.new), "")

    def delay() -> None:
        # It starts late, so that its bases have newer versions by then.
        stage.world.nodes[shadow()].asleep_until = stage.world.now_ms + 40.0

    stage.scale(60.0, "a", 1)
    stage.when(lambda: bool(shadow()), delay)
    stage.play_through()
    demand(not stage.given_up(), "the Replace was given up")
    demand(_restored_from_memory(stage) > 0, "its base was not read from memory")


@scenario
def holder_is_lost() -> None:
    """Another upstream worker takes its place, and reads from the store what it has never been sent."""
    stage = Stage(chain(600, {"s": 2}), workers=5, copies_bytes=ROOM, checkpoint_ms=10_000.0)
    held: list[int] = []

    def look() -> None:
        held.append(stage.operator("a/0").protection.held)

    def lose() -> None:
        stage.world.crash(stage.operator("a/0").protection.holder)
        stage.at(60.0, look)

    stage.at(50.0, lambda: stage.operator("a/0").checkpoint())
    stage.at(65.0, look)
    stage.at(80.0, lose)
    stage.play_through()
    demand(held[0] > 0, "what it is sent is not held")
    demand(held[1] > 0, "nobody holds a copy")
