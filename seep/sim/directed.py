"""Directed schedules: races too rare for seeds, and shrunk failures of earlier days, written down as small scripts.

Each raises `Violation`, or does nothing. They are run by the tests, and by the mutants that only they can find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from functools import partial
from typing import Any

from seep.control.requests import ScaleTo
from seep.model.epoch import Moment
from seep.model.ids import CONTROLLER, FOREVER, PartitionId
from seep.partition.contract import Reading
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.sim.light import Chained, Item, LightIntake, Windowed
from seep.sim.oracle import Violation
from seep.sim.stage import Stage, chain

Scenario = Callable[[], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


def run_scenario(name: str) -> str:
    """The violation, or nothing."""
    try:
        SCENARIOS[name]()
    except Violation as violation:
        return str(violation) or "violated"
    return ""


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


# --- no faults at all -------------------------------------------------------------------------------------------


def _scales(parts: int, **knobs: Any) -> None:
    stage = Stage(chain(400), parts=parts, **knobs)
    for at_ms, operator, count in ((20, "a", 2), (60, "a", 3), (120, "a", 1), (180, "s", 2), (220, "out", 2)):
        stage.scale(at_ms, operator, count)
    stage.play_through()
    _demand(not stage.given_up(), f"a Replace was given up although nothing was wrong: {stage.given_up()}")
    live = {name: len(stage.world.controller.journal.live(name)) for name in stage.graph.nodes}
    _demand(live == {"s": 2, "a": 1, "out": 2}, f"asked for s 2, a 1, out 2, got {live}")


@scenario
def calm_scales() -> None:
    """Every Replace that is asked for completes when nothing is wrong."""
    _scales(1)


@scenario
def calm_scales_with_many_checkpoints() -> None:
    """A checkpoint every epoch: what a pending Replace starts from is neither dropped nor trimmed for."""
    _scales(1, checkpoint_ms=1.0, increments=0)


@scenario
def one_credit() -> None:
    """With credit for one epoch the flow still moves at the speed of its sources."""
    stage = Stage(credit_epochs=1)
    stage.play_through()
    _demand(stage.world.now_ms < 400.0, f"took {stage.world.now_ms:.0f} ms")
    for name in ("a/0", "out/0"):
        partition = stage.partition(name)
        assert not isinstance(partition, SourcePartition)
        _demand(partition.inputs.number == 1, f"{name} subscribed {partition.inputs.number} times")


@scenario
def slow_receiver() -> None:
    """What a receiver has not taken is bounded, at every moment."""
    stage = Stage(credit_epochs=2)
    stage.at(30.0, lambda: setattr(stage.host("out/0"), "asleep_until", stage.world.now_ms + 100.0))

    def watch() -> None:
        for node in stage.world.live_workers():
            assert isinstance(node.machine, Worker)
            for partition in node.machine.partitions.values():
                if isinstance(partition, SinkPartition):
                    continue
                for edge, cursors in partition.outputs.cursors.items():
                    for cursor in cursors.values():
                        _demand(len(cursor.opened) <= 2, f"{len(cursor.opened)} epochs open on {edge}, credit 2")
                    held = sum(
                        entry.progress.epoch > partition.outputs.me.base_epoch
                        for entry in partition.outputs.buffers[edge].entries
                    )
                    _demand(held < 40, f"{held} epochs held for {edge}")

    stage.play_through(watch)


# --- lost messages ----------------------------------------------------------------------------------------------


@scenario
def lost_frames() -> None:
    """Some frames in the middle are lost: the gap shows when the next one comes."""
    stage = Stage()
    for at_ms in (20.0, 47.0, 71.0):
        stage.at(at_ms, lambda: stage.cut(stage.host("s/0").name, stage.host("a/0").name, 7.0, both=False))
        stage.at(at_ms + 12.0, lambda: stage.cut(stage.host("a/0").name, stage.host("out/0").name, 7.0, both=False))
    stage.play_through()


@scenario
def half_an_epoch_lost() -> None:
    """The link is cut between two frames of one epoch: its first rows must not be taken twice."""
    stage = Stage(frame_rows=1)
    cuts = 0

    def watch() -> None:
        nonlocal cuts
        if cuts >= 3 or stage.world.now_ms < 30.0 * (cuts + 1):
            return
        for channel in stage.operator("a/0").inputs.order:
            if channel.partial:
                cuts += 1
                stage.cut(stage.host("s/0").name, stage.host("a/0").name, 4.0, both=False)

    stage.play_through(watch)
    _demand(cuts == 3, "the schedule did not get where it should")


@scenario
def last_frame_lost_before_a_pause() -> None:
    """Nothing follows the lost frame, so no gap ever shows: only silence tells."""
    stage = Stage()

    def last_words() -> None:
        stage.cut(stage.host("a/0").name, stage.host("out/0").name, 10.0, both=False)

    stage.when(lambda: stage.find("s/0") is not None and stage.partition("s/0").ended, last_words)
    stage.play_through()


# --- zombies: cut off from the controller, but at work ----------------------------------------------------------


def _isolate(stage: Stage, partition: str, for_ms: float) -> None:
    stage.cut(CONTROLLER, stage.host(partition).name, for_ms)


@scenario
def zombie_source() -> None:
    """A source that nobody told goes on cutting beside its successor, twice."""
    stage = Stage(chain(400))

    def isolate() -> None:
        zombie = stage.host("s/0")
        for node in stage.world.live_workers():
            # Out of step, so that now the one and now the other is first at the store.
            node.slowness_ms = 0.0 if node is zombie else 1.3
        _isolate(stage, "s/0", 140.0)

    stage.at(40.0, isolate)
    stage.at(240.0, isolate)
    stage.play_through()


@scenario
def zombie_operator() -> None:
    """An operator that nobody told goes on, and its source has not heard either, so trims by its word."""
    stage = Stage(chain(300), checkpoint_ms=5.0)

    def isolate() -> None:
        stage.cut(CONTROLLER, stage.host("s/0").name, 130.0, both=False)
        _isolate(stage, "a/0", 150.0)

    stage.at(40.0, isolate)
    stage.play_through()


@scenario
def zombie_is_counted() -> None:
    """Everything that a zombie sends after its receiver has heard of its successor is refused, and counted."""
    stage = Stage(chain(300), suspect_ms=60.0)
    receiver: list[Worker] = []

    def isolate() -> None:
        machine = stage.host("out/0").machine
        assert isinstance(machine, Worker)
        receiver.append(machine)
        # Its source does not hear of it either, so the zombie goes on getting rows.
        stage.cut(CONTROLLER, stage.host("s/0").name, 120.0, both=False)
        _isolate(stage, "a/0", 150.0)

    stage.at(40.0, isolate)
    stage.play_through()
    _demand(receiver[0].statistics().get("dropped_fenced", 0) > 0, "nothing of the zombie was refused")


@scenario
def zombie_sink_in_a_handover() -> None:
    """A sink wakes up after its successor has handed over: what it still appends must not count."""
    stage = Stage(chain(300))
    stage.at(40.0, lambda: setattr(stage.host("out/0"), "asleep_until", 240.0))
    stage.scale(60.0, "out", 2)
    stage.play_through()


@scenario
def zombie_controller() -> None:
    """An old controller's plans arrive after its successor's: no worker goes back."""
    stage = Stage(chain(300))
    world = stage.world
    known: dict[str, tuple[int, int]] = {}

    def supersede() -> None:
        old = world.nodes[CONTROLLER]
        old.name = "controller before"
        for worker in world.live_workers():
            world.link_free_ms[old.name, worker.name] = world.now_ms + 80.0
        world.start_controller()
        world._deliver(old, ScaleTo("a", 2))
        world.at(1.0, lambda: setattr(old, "alive", False))

    def watch() -> None:
        for node in world.live_workers():
            assert isinstance(node.machine, Worker)
            journal = node.machine.desk.journal
            now = (journal.term, journal.version)
            _demand(known.get(node.name, now) <= now, f"{node.name} went back from {known.get(node.name)} to {now}")
            known[node.name] = now

    stage.at(40.0, supersede)
    stage.scale(60.0, "a", 3)
    stage.play_through(watch)


@scenario
def fence_raised_then_controller_gone() -> None:
    """The store already refuses a partition that is alive; the controller that meant to replace it is gone."""
    stage = Stage(chain(300), parts=2)
    victim = PartitionId("a", 0)
    stage.at(40.0, lambda: _isolate(stage, "a/0", 90.0))

    def refused() -> bool:
        fence = stage.world.store.fences.get(victim)
        return fence is not None and fence > stage.world.controller.journal.entries[victim].generation

    stage.when(refused, lambda: stage.restart_controller(50.0))
    stage.play_through()


# --- what is gone is gone: never silently less --------------------------------------------------------------------


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
    _demand("no longer has them" in report, f"went on from nothing: {report!r}")


@scenario
def running_source_and_a_receiver_without_checkpoint() -> None:
    """`after` below what was trimmed is refused."""
    report = _lose_checkpoints(Stage(chain(300)), "a/0", "a/0")
    _demand("no longer has them" in report, f"went on from nothing: {report!r}")


@scenario
def failed_flow_rests() -> None:
    """A flow that stopped with a report says so once, and writes no more."""
    stage = Stage(chain(300))
    _demand(bool(_lose_checkpoints(stage, "a/0", "a/0")), "went on from nothing")
    world = stage.world
    version = world.controller.journal.version
    world.run_until(lambda: False, world.now_ms + 200.0)
    _demand(world.controller.journal.version <= version + 1, "the journal is written again and again")


@scenario
def restored_operator_remembers_what_it_trimmed() -> None:
    """Restored from an increment, an operator refuses what was trimmed since the full checkpoint below it."""
    stage = Stage(chain(300), increments=40, checkpoint_ms=5.0)
    trimmed: list[int] = []

    def crash() -> None:
        chains = stage.world.store._chains(PartitionId("a", 0), 0)
        trimmed.extend(checkpoint.trimmed["a>out"].epoch for checkpoint in chains[0])
        stage.crash("a/0")

    stage.at(90.0, crash)

    def back() -> bool:
        return bool(trimmed) and stage.find("a/0") is not None and stage.partition("a/0").running

    def look() -> None:
        now = stage.operator("a/0").outputs.buffers["a>out"].trimmed.epoch
        _demand(now >= trimmed[-1] > trimmed[0], f"trimmed up to {now} after restore, before it {trimmed}")

    stage.when(back, look)
    stage.play_through()


@scenario
def damaged_increment_inside_a_chain() -> None:
    """A flipped bit below a newer increment: what is written from then on must not revive the newer one."""
    stage = Stage(chain(300), increments=40, checkpoint_ms=5.0)
    victim = PartitionId("a", 0)

    def damage() -> None:
        newest = max(stage.world.store.checkpoints[victim])
        stage.world.store.damaged.add((victim, newest - 1))
        stage.crash("a/0")
        stage.when(lambda: not stage.world.store.damaged, lambda: stage.crash("a/0"))

    # Its last trims do not arrive, so there is enough to replay from the one before.
    stage.at(30.0, lambda: stage.cut(stage.host("a/0").name, stage.host("s/0").name, 31.0, both=False))
    stage.at(60.0, damage)
    stage.play()


# --- lives --------------------------------------------------------------------------------------------------------


@scenario
def ended_source_is_not_replaced() -> None:
    """Asked to scale after its last row, a source stays as it is."""
    stage = Stage()
    stage.when(
        lambda: stage.find("s/0") is not None and stage.partition("s/0").ended,
        lambda: stage.world.request(ScaleTo("s", 2)),
    )
    stage.play_through()
    _demand(len(stage.world.controller.journal.of("s")) == 1, "it was replaced")


@scenario
def split_of_two_with_bases_far_apart() -> None:
    """Two old partitions are split at once, from checkpoints of different epochs: E is later than both."""
    stage = Stage(chain(300, {"a": 2}), checkpoint_ms=60.0)

    def early() -> None:
        stage.operator("a/0").checkpoint()

    def late() -> None:
        stage.operator("a/1").checkpoint()
        stage.world.request(ScaleTo("a", 4))

    stage.at(62.0, early)
    stage.at(108.0, late)
    stage.play_through()
    _demand(not stage.given_up(), f"{stage.given_up()}")


# --- what must show that it is not deterministic --------------------------------------------------------------------


class Fickle(Chained):
    """Answers differently in every process: a clock, say."""

    starts = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, keys=17)
        Fickle.starts += 1
        self.start = Fickle.starts

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        return [(bucket, (key, value + self.start, time)) for bucket, (key, value, time) in items]


@scenario
def fickle_operator_is_found_out() -> None:
    """A replay that differs stops the flow, naming the operator."""
    stage = Stage(chain(300, deep=True, a=Fickle), checkpoint_ms=40.0)
    stage.at(90.0, lambda: stage.crash("a/0"))
    world = stage.world
    _demand(world.run_until(stage.over, 5_000.0), "no end")
    report = world.controller.journal.stopping
    _demand("a/0 replayed epoch" in report, f"not found out: {report!r}")


class FickleIntake(LightIntake):
    """Reads other rows the second time."""

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        self.salt += until is not None
        return super().read(split, position, until, limit_rows, now_ms)


@scenario
def fickle_source_is_found_out() -> None:
    """A reread that differs from the log stops with a report."""
    stage = Stage(chain(300, s=FickleIntake))
    stage.at(60.0, lambda: stage.crash("s/0"))
    _demand(stage.world.run_until(stage.over, 5_000.0), "no end")
    report = stage.world.controller.journal.stopping
    _demand("reads differently" in report, f"not found out: {report!r}")


# --- event time -----------------------------------------------------------------------------------------------------


class Hasty(LightIntake):
    """No lateness allowed: many rows are late, so that who judges them by which watermark shows."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lateness_us = 0


@scenario
def late_rows_after_a_restore() -> None:
    """The first epoch after a restore is judged by the watermark of the checkpoint."""
    stage = Stage(chain(400, s=Hasty, a=Windowed), checkpoint_ms=5.0)
    for at_ms in range(30, 300, 30):
        stage.at(at_ms, lambda: stage.find("a/0") and stage.crash("a/0"))
    stage.play_through()


__all__ = ["FOREVER", "SCENARIOS", "run_scenario", "with_fields"]
