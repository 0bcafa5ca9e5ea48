"""Copies of checkpoints in upstream memory, at the wrong moment."""

from __future__ import annotations

from seep.partition.worker import Worker
from seep.protocol.effects import Effect, LoadCheckpoints, StoreReply
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
    stage.at(90.0, lambda: _crash_with_its_checkpoints(stage))
    stage.play_through()
    demand(_restored_from_memory(stage) == 1, "it was not restored from memory")


@scenario
def another_holds_the_copy_when_its_holder_is_gone() -> None:
    """Before there is a next checkpoint: what is there must not stay without a copy until then."""
    stage = Stage(chain(600, {"s": 2}), workers=4, copies_bytes=ROOM, checkpoint_ms=100.0)
    gone, found = [""], [("", 0)]

    def kept() -> bool:
        return stage.find("a/0") is not None and bool(stage.operator("a/0").protection.held)

    def lose() -> None:
        gone[0] = stage.operator("a/0").protection.holder
        demand(stage.host("a/0").name != gone[0], "they are in one place")
        stage.world.crash(gone[0])
        stage.at(60.0, look)

    def look() -> None:
        protection = stage.operator("a/0").protection
        found[0] = protection.holder, protection.held

    stage.when(kept, lose)
    stage.play_through()
    holder, held = found[0]
    demand(holder not in ("", gone[0]) and held > 0, f"{holder!r} holds version {held}; {gone[0]} is gone")


def _crash_with_its_checkpoints(stage: Stage) -> None:
    partition = stage.operator("a/0").entry.partition
    for version in stage.world.store.checkpoints[partition]:
        stage.world.store.tear(partition, version)
    stage.crash("a/0")


@scenario
def copy_that_comes_late() -> None:
    """The store has nothing that can be used, and who holds the copy is too busy to answer at once."""
    stage = Stage(chain(300), copies_bytes=ROOM, suspect_ms=1_000.0)

    def lose() -> None:
        holder = stage.operator("a/0").protection.holder
        _crash_with_its_checkpoints(stage)
        stage.world.nodes[holder].asleep_until = stage.world.now_ms + 200.0

    stage.at(90.0, lose)
    stage.play_through()
    demand(_restored_from_memory(stage) == 1, "it was not restored from memory")


@scenario
def copy_of_the_version_before() -> None:
    """The store has nothing that can be used; the holder has not heard of the newest version, but of the one before."""
    stage = Stage(chain(300), copies_bytes=ROOM)

    def stop() -> None:
        held = stage.operator("a/0").protection.held
        _stop_copies(stage)
        stage.when(
            lambda: stage.operator("a/0").saver.durable[-1].version == held + 1,
            lambda: _crash_with_its_checkpoints(stage),
            every_ms=0.05,
        )

    stage.at(60.0, lambda: stage.when(lambda: _is_protected(stage), stop))
    stage.play_through()
    demand(_restored_from_memory(stage) == 1, "it was not restored from memory")


def _is_protected(stage: Stage) -> bool:
    operator = stage.operator("a/0")
    return len(operator.saver.durable) > 1 and operator.protection.held == operator.saver.durable[-1].version


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
    stage = Stage(chain(600, {"s": 2}), workers=5, copies_bytes=ROOM, checkpoint_ms=10_000.0, retry_ms=500.0)
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


@scenario
def copies_follow_by_increments() -> None:
    """What is sent to a holder is enough: nothing is read from the store as long as nobody is lost."""
    stage = Stage(chain(600), copies_bytes=ROOM, checkpoint_ms=10.0, increments=8)
    perform, reads, held = stage.world.store.perform, [0], [0]

    def counted(effect: Effect, now_ms: float = 0.0, answered_ms: float = 0.0) -> StoreReply | None:
        reads[0] += isinstance(effect, LoadCheckpoints) and effect.upto > 0
        return perform(effect, now_ms, answered_ms)

    def watch() -> None:
        if stage.find("a/0") is not None:
            held[0] = max(held[0], stage.operator("a/0").protection.held)

    stage.world.store.perform = counted  # type: ignore[method-assign]
    stage.play_through(watch)
    saved = stage.operator("a/0").saver.durable[-1].version
    demand(held[0] >= saved - 1, f"version {held[0]} is held, {saved} is the newest")
    demand(reads[0] == 0, f"the store was read {reads[0]} times")


@scenario
def what_is_held_is_said_again() -> None:
    """The holder's answer is lost: asked again, it says so again."""
    stage = Stage(chain(600), copies_bytes=ROOM, checkpoint_ms=10_000.0, suspect_ms=1_000.0)
    held: list[int] = []

    def save() -> None:
        operator = stage.operator("a/0")
        operator.checkpoint()
        stage.when(lambda: bool(operator.saver.durable), lose, every_ms=0.05)

    def lose() -> None:
        operator = stage.operator("a/0")
        stage.cut(operator.protection.holder, stage.host("a/0").name, 4.0, both=False)
        stage.at(3.0, lambda: held.append(operator.protection.held))
        stage.at(60.0, lambda: held.append(operator.protection.held))

    stage.at(50.0, save)
    stage.play_through()
    demand(held[0] == 0 < held[1], f"versions held by its owner's word: {held}")


@scenario
def nobody_has_a_copy() -> None:
    """All who might have one say that they have none: the store is asked at once, not after a while."""
    stage = Stage(chain(300), copies_bytes=ROOM, report_ms=50.0)
    crashed: list[float] = []
    back: list[float] = []

    def crash() -> None:
        for node in stage.world.live_workers():
            assert isinstance(node.machine, Worker)
            node.machine.holder.chains.clear()
            node.machine.holder.bytes.clear()
        crashed.append(stage.world.now_ms)
        stage.crash("a/0")

    def watch() -> None:
        if crashed and not back and stage.find("a/0") is not None and stage.partition("a/0").running:
            back.append(stage.world.now_ms)

    stage.at(60.0, crash)
    stage.play_through(watch)
    demand(back[0] - crashed[0] < 20.0, f"it took {back[0] - crashed[0]:.1f} ms to come back")
    demand(_restored_from_memory(stage) == 0, "it was restored from memory")
