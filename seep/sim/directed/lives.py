"""Where lives begin and end, what replays must repeat, and which watermark judges."""

from __future__ import annotations

from functools import partial
from typing import Any

from seep.control.requests import ScaleTo
from seep.errors import SeepError
from seep.model.epoch import Moment
from seep.model.ids import CONTROLLER, FOREVER, PartitionId
from seep.partition.contract import Reading
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import Chained, Item, LightIntake, Windowed
from seep.sim.stage import Stage, chain


@scenario
def ended_source_is_not_replaced() -> None:
    """Asked to scale after its last row, a source stays as it is."""
    stage = Stage()

    def ask() -> None:
        # The end of the flow is held up, so that there is time for it.
        stage.cut(stage.host("a/0").name, stage.host("out/0").name, 60.0, both=False)
        stage.world.request(ScaleTo("s", 2))

    stage.when(lambda: stage.find("s/0") is not None and stage.partition("s/0").ended, ask)
    stage.play_through()
    demand(len(stage.world.controller.journal.of("s")) == 1, "it was replaced")


@scenario
def split_of_two_with_bases_far_apart() -> None:
    """Two old partitions are split at once, from checkpoints of different epochs: E is later than both."""
    for offset in range(8):
        # Epochs are long and credit is short: shadows are seen while they are still behind the later checkpoint.
        stage = Stage(chain(120, {"a": 2}), workers=8, epoch_ms=20.0, credit_epochs=1, checkpoint_ms=10_000.0)
        _split_both(stage, 204.0 + offset)
        stage.play_through()
        demand(not stage.given_up(), f"{stage.given_up()}")


def _split_both(stage: Stage, at_ms: float) -> None:
    def late() -> None:
        stage.operator("a/1").checkpoint()
        stage.world.request(ScaleTo("a", 4))

    def hold_the_sink() -> None:
        for old in ("a/0", "a/1"):
            stage.cut(stage.host(old).name, stage.host("out/0").name, 75.0, both=False)

    stage.at(62.0, lambda: stage.operator("a/0").checkpoint())
    stage.at(180.0, hold_the_sink)
    stage.at(at_ms, late)


@scenario
def split_is_not_felt_downstream() -> None:
    """Routing is switched when the new partitions have caught up: a new one that hangs holds nobody back."""
    stage = Stage(chain(300))
    gaps = [0.0]
    last = [0, 0.0]

    def starting() -> bool:
        # Both have their places, and the one that will hang has said so.
        journal = stage.world.controller.journal
        placed = bool(journal.replaces) and all(journal.entries[p].worker for p in journal.replaces[0].new)
        node = stage.find("a/1")
        if node is None or not placed:
            return False
        assert isinstance(node.machine, Worker)
        return node.machine.desk.journal.version == journal.version

    def hang() -> None:
        stage.host("a/1").asleep_until = stage.world.now_ms + 40.0

    def watch() -> None:
        committed = len(stage.world.store.history.get(PartitionId("out", 0), ()))
        if committed > last[0]:
            gaps.append(stage.world.now_ms - last[1] if last[0] else 0.0)
            last[:] = [committed, stage.world.now_ms]

    stage.scale(60.0, "a", 2)
    stage.when(starting, hang, every_ms=0.05)
    stage.play_through(watch)
    demand(max(gaps) < 30.0, f"nothing was committed for {max(gaps):.0f} ms")


@scenario
def old_ones_run_on_past_the_switch() -> None:
    """The controller decides on what it heard last of the old one, which is further by then: it ends where it was
    told, and goes."""
    stage = Stage(chain(600))
    past: list[bool] = []

    def starting() -> bool:
        return all(stage.find(name) is not None for name in ("a/1", "a/2")) and stage.partition("a/1").running

    def hold() -> None:
        stage.cut(stage.host("a/0").name, CONTROLLER, 60.0, both=False)
        stage.cut(stage.host("a/2").name, CONTROLLER, 40.0, both=False)
        stage.at(12.0, lambda: stage.cut(stage.host("a/1").name, CONTROLLER, 50.0, both=False))

    def watch() -> None:
        if not past and stage.find("a/0") is not None:
            old = stage.operator("a/0")
            if old.entry.last < FOREVER:
                past.append(old.epoch > old.entry.last + 2)

    stage.scale(60.0, "a", 2)
    stage.when(starting, hold, every_ms=0.1)
    stage.play_through(watch)
    demand(past == [True], "the schedule did not get where it should")
    demand(PartitionId("a", 0) not in stage.world.controller.journal.entries, "it is still there")


@scenario
def source_that_slept_joins_the_others() -> None:
    """Two sources: after a sleep of one, its next epoch is the newest that anybody has heard of."""
    stage = Stage(chain(600, starts={"s": 2}), suspect_ms=1_000.0)
    stage.at(60.0, lambda: setattr(stage.host("s/1"), "asleep_until", stage.world.now_ms + 120.0))
    apart: list[int] = []

    def compare() -> None:
        one, other = stage.partition("s/0"), stage.partition("s/1")
        assert isinstance(one, SourcePartition)
        assert isinstance(other, SourcePartition)
        apart.append(abs(one.epoch - other.epoch))

    stage.at(170.0, compare)
    stage.at(215.0, compare)
    stage.play_through()
    demand(apart[0] > 2, "the schedule did not get where it should")
    demand(apart[1] <= 2, f"they are {apart[1]} epochs apart")


class Failing(Chained):
    """Cannot go on: what it needs is gone."""

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        if moment.epoch > 8:
            raise SeepError("the scale is broken")
        return super().fold(moment, items)


@scenario
def operator_that_fails_stops_the_flow() -> None:
    """Its report says who and why. What it held by then is not saved, though nobody hears of it for a while."""
    stage = Stage(chain(300, a=partial(Failing, keys=17)))

    def failed() -> bool:
        return stage.find("a/0") is not None and bool(stage.partition("a/0").failure)

    saved: list[int] = []

    def hide() -> None:
        stage.cut(stage.host("a/0").name, CONTROLLER, 60.0, both=False)
        saved.append(stage.operator("a/0").saver.version)
        stage.at(55.0, lambda: saved.append(stage.operator("a/0").saver.version))

    stage.when(failed, hide, every_ms=0.05)
    demand(stage.world.run_until(stage.over, 5_000.0), "no end")
    demand(saved[0] == saved[1], "a state that is half changed was saved")
    report = stage.world.controller.journal.stopping
    demand("a: the scale is broken" in report, f"stopped with {report!r}")


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
    demand(world.run_until(stage.over, 5_000.0), "no end")
    report = world.controller.journal.stopping
    demand("a/0 replayed epoch" in report, f"not found out: {report!r}")


class FickleIntake(LightIntake):
    """Reads other rows the second time."""

    def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
        self.salt += until is not None
        return super().read(split, position, until, limit_rows, now_ms)


@scenario
def fickle_source_is_found_out() -> None:
    """A reread that differs from the log stops with a report. Rows are read again only for one that needs them."""
    stage = Stage(chain(300, s=FickleIntake))
    stage.at(60.0, lambda: stage.crash("s/0"))
    stage.at(60.0, lambda: stage.crash("a/0"))
    demand(stage.world.run_until(stage.over, 5_000.0), "no end")
    report = stage.world.controller.journal.stopping
    demand("reads differently" in report, f"not found out: {report!r}")


class Hasty(LightIntake):
    """No lateness allowed: many rows are late, so that who judges them by which watermark shows."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.lateness_us = 0


@scenario
def late_rows_after_a_restore() -> None:
    """The first epoch after a restore is judged by the watermark of the checkpoint."""
    stage = Stage(chain(800, s=Hasty, a=Windowed), checkpoint_ms=5.0)

    def crash() -> None:
        if stage.find("a/0") is not None and stage.partition("a/0").running:
            stage.crash("a/0")

    for at_ms in range(30, 600, 17):
        stage.at(at_ms, crash)
    stage.play_through()


@scenario
def source_restarts_where_its_log_was_cut() -> None:
    """A receiver has heard from the old life of a source about the epoch before the new one's log begins; of that epoch
    the new life has no digest any more, and says so."""
    stage = Stage(chain(300, {"s": 2}), workers=6, checkpoint_ms=10_000.0, suspect_ms=1_000.0)

    def source() -> SourcePartition:
        found = stage.partition("s/0")
        assert isinstance(found, SourcePartition)
        return found

    def behind_by(epochs: int) -> bool:
        receiver = stage.operator("a/0")
        saved = bool(receiver.saver.durable) and receiver.saver.durable[-1].epoch == receiver.epoch
        if not saved and not receiver.saver.busy and epochs:
            receiver.checkpoint()
        return saved and source().truncated == receiver.epoch - epochs

    def sleep() -> None:
        # After some silence the receiver asks anew; before it is answered it saves the same epoch again.
        for name in ("s/0", "s/1"):
            stage.host(name).asleep_until = stage.world.now_ms + 40.0
        asleep_ms, channels = stage.world.now_ms, stage.operator("a/0").inputs.order
        stage.when(lambda: all(channel.asked_ms > asleep_ms for channel in channels), save_again)

    def save_again() -> None:
        stage.operator("a/0").checkpoint()
        stage.when(lambda: behind_by(0), lambda: stage.crash("s/0"), every_ms=0.05)

    stage.at(50.0, lambda: stage.when(lambda: behind_by(1), sleep, every_ms=0.05))
    stage.play_through()
    restarts = sum("s/0 restarts" in what for _, what in stage.world.controller.decisions)
    demand(restarts > 0, "the schedule missed its moment")
