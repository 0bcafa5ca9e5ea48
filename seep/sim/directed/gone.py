"""Checkpoints are lost or damaged: what is gone is said, never silently left out."""

from __future__ import annotations

from seep.model.ids import CONTROLLER, KeyRange, PartitionId
from seep.protocol.effects import LoadCheckpoints
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain


def _lose_checkpoints(stage: Stage, partition: str, *crashed: str) -> str:
    def lose() -> None:
        stage.world.store.checkpoints.pop(PartitionId.parse(partition), None)
        for name in {stage.host(name).name for name in crashed}:
            stage.world.crash(name)

    stage.at(90.0, lose)
    return stage.play()


@scenario
def restarted_source_and_a_receiver_without_checkpoint() -> None:
    """A source that was started again must not serve what its log no longer holds as if it had been empty."""
    report = _lose_checkpoints(Stage(chain(300)), "a/0", "s/0", "a/0")
    demand("no longer has them" in report, f"went on from nothing: {report!r}")


@scenario
def running_source_and_a_receiver_without_checkpoint() -> None:
    """`after` below what was trimmed is refused."""
    report = _lose_checkpoints(Stage(chain(300)), "a/0", "a/0")
    demand("no longer has them" in report, f"went on from nothing: {report!r}")


@scenario
def failed_flow_rests() -> None:
    """A flow that stopped with a report says so once, and writes no more."""
    stage = Stage(chain(300))
    demand(bool(_lose_checkpoints(stage, "a/0", "a/0")), "went on from nothing")
    world = stage.world
    version = world.controller.journal.version
    world.run_until(lambda: False, world.now_ms + 200.0)
    demand(world.controller.journal.version <= version + 1, "the journal is written again and again")


@scenario
def restored_operator_remembers_what_it_trimmed() -> None:
    """Restored from an increment, an operator refuses what was trimmed since the full checkpoint below it."""
    stage = Stage(chain(300), increments=40, checkpoint_ms=5.0)
    trimmed: list[int] = []

    def crash() -> None:
        chains = stage.world.store.chains(PartitionId("a", 0))
        trimmed.extend(checkpoint.trimmed["a>out"].epoch for checkpoint in chains[0])
        stage.crash("a/0")

    stage.at(90.0, crash)

    def back() -> bool:
        return bool(trimmed) and stage.find("a/0") is not None and stage.partition("a/0").running

    def look() -> None:
        now = stage.operator("a/0").outputs.buffers["a>out"].trimmed.epoch
        demand(now >= trimmed[-1] > trimmed[0], f"trimmed up to {now} after restore, before it {trimmed}")

    stage.when(back, look)
    stage.play_through()


@scenario
def damaged_increment_inside_a_chain() -> None:
    """A flipped bit below a newer increment: what is written from then on must not revive the newer one."""
    stage = Stage(chain(300), increments=40, checkpoint_ms=5.0)
    victim = PartitionId("a", 0)

    def damage() -> None:
        newest = max(stage.world.store.checkpoints[victim])
        stage.world.store.tear(victim, newest - 1)
        stage.crash("a/0")
        stage.when(lambda: not stage.world.store.damaged, lambda: stage.crash("a/0"))

    # Its last trims do not arrive, so there is enough to replay from the one before.
    stage.at(30.0, lambda: stage.cut(stage.host("a/0").name, stage.host("s/0").name, 31.0, both=False))
    stage.at(60.0, damage)
    stage.play()


@scenario
def merge_with_a_damaged_base() -> None:
    """One of a merge's two checkpoints is damaged: an older one of another epoch must not stand in for it."""
    stage = Stage(chain(400, {"a": 2}), checkpoint_ms=5.0)
    store = stage.world.store

    def merging() -> bool:
        return any(replace.at and not replace.new for replace in stage.world.controller.journal.replaces)

    def damage_what_is_pinned() -> None:
        pinned = stage.operator("a/0").pin.kept
        assert pinned is not None
        store.tear(PartitionId("a", 0), pinned[1])

    def pinned() -> bool:
        return merging() and stage.operator("a/0").pin.kept is not None

    stage.scale(50.0, "a", 1)
    stage.when(pinned, damage_what_is_pinned, every_ms=0.05)
    stage.play_through()
    demand(bool(store.damaged), "the schedule did not get where it should")


@scenario
def base_damaged_in_one_section() -> None:
    """Of what a split starts from, one section is damaged: the shadow that needs it says so, and the Replace begins
    anew; one that needs another part of it notices nothing."""
    stage = Stage(chain(400), checkpoint_ms=5.0, suspect_ms=1_000.0)
    store, victim = stage.world.store, PartitionId("a", 0)

    def pinned() -> bool:
        replaced = any(r.operator == "a" and not r.new for r in stage.world.controller.journal.replaces)
        return replaced and stage.operator("a/0").pin.kept is not None

    def damage_a_section() -> None:
        found = stage.operator("a/0").pin.kept
        assert found is not None
        demand(bool(store.checkpoints[victim][found[1]].buffers), "it has no buffer to leave out")
        store.tear(victim, found[1], KeyRange(2048, 4096))
        read = store.perform(LoadCheckpoints(1, victim, found[1], KeyRange(0, 2048)))
        demand(read is not None and read.value[-1].version == found[1], "a whole section was not read")
        demand(read is not None and not any(c.buffers for c in read.value), "a part has a buffer")

    stage.scale(50.0, "a", 2)
    stage.when(pinned, damage_a_section, every_ms=0.05)
    stage.play_through()
    demand(bool(stage.given_up()), "nobody met the damage")
    demand(len(stage.world.controller.journal.live("a")) == 2, "it was not begun anew")


@scenario
def merge_at_a_checkpoint_known_by_name_only() -> None:
    """One of two that are merged hears late of which epoch the merge starts from; it has saved that one, and dropped it
    again. Then its newest checkpoint is damaged, and it falls back to one that still names it."""
    stage = Stage(chain(600, {"a": 2}), workers=6, checkpoint_ms=1.0, increments=0, suspect_ms=1_000.0)
    store, victim = stage.world.store, PartitionId("a", 0)

    def asked_for() -> int:
        return next((replace.at for replace in stage.world.controller.journal.replaces if not replace.new), 0)

    def named_only() -> bool:
        if not asked_for() or len(stage.operator("a/0").saver.durable) < 2:
            return False
        before = store.checkpoints[victim][stage.operator("a/0").saver.durable[-2].version].before
        return before is not None and before.epoch == asked_for() and before.version not in store.checkpoints[victim]

    def damage() -> None:
        store.tear(victim, stage.operator("a/0").saver.durable[-1].version)
        stage.crash("a/0")

    stage.at(58.0, lambda: stage.cut(CONTROLLER, stage.host("a/0").name, 60.0, both=False))
    stage.scale(60.0, "a", 1)
    stage.when(named_only, damage, every_ms=0.05)
    stage.play_through()
    demand(bool(store.damaged), "the schedule did not get where it should")
    demand(not stage.given_up(), f"the merge started from it: {stage.given_up()}")
