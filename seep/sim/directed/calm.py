"""Nothing is wrong: what is asked for happens, in time and within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from seep.control.progress import progress
from seep.control.requests import FixEpoch, ReleaseEpoch
from seep.model.epoch import Moment
from seep.model.ids import CONTROLLER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node, Reading
from seep.partition.sink import SinkPartition
from seep.partition.source import SourcePartition
from seep.partition.worker import Worker
from seep.protocol.journal import SEALED, SHADOW
from seep.sim.checks import partitions
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import Chained, Item, LightIntake, LightOutlet, by_key
from seep.sim.stage import Stage, chain


def _scales(parts: int, **knobs: Any) -> None:
    stage = Stage(chain(400), parts=parts, **knobs)
    for at_ms, operator, count in ((20, "a", 2), (60, "a", 3), (120, "a", 1), (180, "s", 2), (220, "out", 2)):
        stage.scale(at_ms, operator, count)
    stage.play_through()
    demand(not stage.given_up(), f"a Replace was given up although nothing was wrong: {stage.given_up()}")
    live = {name: len(stage.world.controller.journal.live(name)) for name in stage.graph.nodes}
    demand(live == {"s": 2, "a": 1, "out": 2}, f"asked for s 2, a 1, out 2, got {live}")
    controller = stage.world.controller
    demand(not any(e.base for e in controller.journal.entries.values()), "what one started from is still kept")
    demand(controller.statuses.keys() <= controller.journal.entries.keys(), "one that is gone is not forgotten")
    _demand_that_all_listen(stage)
    gone = [
        str(p) for p, saved in stage.world.store.checkpoints.items() if saved and p not in controller.journal.entries
    ]
    demand(not gone, f"checkpoints of {gone} are still there")
    old = stage.world.store.logs[PartitionId("s", 0)]
    demand(len(old) == 1, f"the log of a source that is gone has {len(old)} epochs")
    kept = max(len(log) for log in stage.world.store.logs.values())
    demand(kept < 30, f"a log still has {kept} epochs")


def _demand_that_all_listen(stage: Stage) -> None:
    for partition in partitions(stage.world):
        if isinstance(partition, SinkPartition):
            continue
        for receiver, cursor in ((r, c) for cursors in partition.outputs.cursors.values() for r, c in cursors.items()):
            served = stage.partition(str(receiver))
            assert not isinstance(served, SourcePartition)
            listens = cursor.subscription in served.inputs.by_subscription
            demand(listens, f"{partition.entry.partition} still serves {receiver}, which has left")


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
    demand(stage.world.now_ms < 400.0, f"took {stage.world.now_ms:.0f} ms")
    for name in ("a/0", "out/0"):
        partition = stage.partition(name)
        assert not isinstance(partition, SourcePartition)
        demand(partition.inputs.number == 1, f"{name} subscribed {partition.inputs.number} times")


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
                        demand(len(cursor.opened) <= 2, f"{len(cursor.opened)} epochs open on {edge}, credit 2")
                    held = sum(
                        entry.progress.epoch > partition.outputs.me.base_epoch
                        for entry in partition.outputs.buffers[edge].entries
                    )
                    demand(held < 40, f"{held} epochs held for {edge}")

    stage.play_through(watch)


@scenario
def slow_controller_in_a_replace() -> None:
    """The controller sleeps between the first step and the second: the base is neither dropped nor trimmed for."""
    stage = Stage(chain(400), checkpoint_ms=1.0, increments=0)
    stage.scale(40.0, "a", 2)

    def sleep() -> None:
        stage.world.nodes[CONTROLLER].asleep_until = stage.world.now_ms + 60.0

    stage.when(lambda: bool(stage.world.controller.journal.replaces), sleep)
    stage.play_through()
    demand(not stage.given_up(), f"{stage.given_up()}")
    demand(len(stage.world.controller.journal.live("a")) == 2, "it was not split")


@scenario
def new_controller_adopts_what_runs() -> None:
    """A controller is killed and started again; the workers are well, so nothing is started again."""
    stage = Stage(chain(300))
    before: dict[PartitionId, Generation] = {}

    def crash() -> None:
        before.update({p: e.generation for p, e in stage.world.controller.journal.entries.items()})
        stage.restart_controller(30.0)
        # One of them is heard later than the others, but in time.
        stage.cut(stage.host("a/0").name, CONTROLLER, 60.0, both=False)

    stage.at(60.0, crash)
    stage.play_through()
    after = {p: e.generation for p, e in stage.world.controller.journal.entries.items()}
    demand(after == before, f"started again: {[str(p) for p in after if after[p] != before.get(p)]}")


@scenario
def recovery_is_prompt() -> None:
    """No retry is waited for on the way back: plan, fence, load, subscribe, replay follow each other at once."""
    stage = Stage(chain(300), retry_ms=200.0, report_ms=50.0)
    crashed: list[float] = []
    back: list[float] = []
    known = [0]

    def crash() -> None:
        known[0] = stage.world.store.history[PartitionId("out", 0)][-1][0]
        crashed.append(stage.world.now_ms)
        stage.crash("a/0")

    def watch() -> None:
        if crashed and not back and stage.world.store.history[PartitionId("out", 0)][-1][0] > known[0] + 1:
            back.append(stage.world.now_ms)

    stage.at(60.0, crash)
    stage.play_through(watch)
    demand(back[0] - crashed[0] < 12.0, f"it took {back[0] - crashed[0]:.1f} ms to come back")


@scenario
def full_buffers() -> None:
    """A source at its limit cuts no epoch before something is trimmed: at rest, everything that precedes is."""
    stage = Stage(chain(400), buffer_bytes=1_000, checkpoint_ms=60.0)
    stage.scale(100.0, "a", 2)
    stage.play_through()
    demand(len(stage.world.controller.journal.live("a")) == 2, "it was not split")


@scenario
def workers_that_rest_are_let_go() -> None:
    """After a merge there is a worker too many: it goes, and no partition with it."""
    stage = Stage(chain(1_600), release_ms=30.0)
    for at_ms, count in ((40.0, 4), (250.0, 1), (450.0, 2)):
        stage.scale(at_ms, "a", count)
    stage.play_through()
    decisions = [what for _, what in stage.world.controller.decisions]
    demand(any("released" in what for what in decisions), "nobody was let go")
    demand(not any("restarts" in what for what in decisions), f"one that was at work went: {decisions}")
    demand(not any("lost" in what for what in decisions), f"one that was let go still counted: {decisions}")
    demand(len(stage.world.live_workers()) <= 5, f"{len(stage.world.live_workers())} workers at the end")


@scenario
def workers_that_are_wanted_stay() -> None:
    """Those in reserve have nothing to do for long: they are let go only if there are more than were wanted."""
    stage = Stage(chain(600), release_ms=20.0, spare_workers=3)
    released: list[int] = []

    def look() -> None:
        released.append(stage.world.counts["released"])

    stage.scale(150.0, "a", 2)
    stage.when(lambda: bool(stage.world.controller.journal.replaces), lambda: stage.at(5.0, look))
    stage.play_through()
    demand(released == [0], "one that was wanted was let go")


@scenario
def shadow_waits_for_a_slot_of_its_own() -> None:
    """A worker that is wanted comes in a moment: until then a shadow is placed beside nobody."""
    stage = Stage(chain(400))
    beside: set[str] = set()

    def watch() -> None:
        entries = stage.world.controller.journal.entries.values()
        for shadow in (entry for entry in entries if entry.role == SHADOW and entry.worker):
            beside.update(str(e.partition) for e in entries if e.worker == shadow.worker and e != shadow)

    stage.scale(60.0, "a", 3)
    stage.play_through(watch)
    demand(len(stage.world.controller.journal.live("a")) == 3, "it was not split")
    demand(not beside, f"shadows were placed beside {sorted(beside)}")


@scenario
def split_is_prompt() -> None:
    """Reports and retries are rare: whatever the next step waits for is told at once."""
    stage = Stage(chain(900), report_ms=250.0, retry_ms=250.0, suspect_ms=1_000.0)
    for at_ms, operator, count in ((60, "a", 2), (160, "a", 1), (260, "s", 2), (360, "out", 2), (460, "out", 3)):
        stage.scale(at_ms, operator, count)
    sealed: dict[PartitionId, list[float]] = {}

    def watch() -> None:
        for entry in stage.world.controller.journal.entries.values():
            if entry.role == SEALED:
                sealed.setdefault(entry.partition, []).append(stage.world.now_ms)

    stage.play_through(watch)
    stayed = max(seen[-1] - seen[0] for seen in sealed.values())
    demand(stayed < 60, f"an old one stayed for {stayed:.0f} ms")
    done = [at_ms for at_ms, what in stage.world.controller.decisions if "committed" in what or "handed" in what]
    taken = [round(at_ms % 100 - 60) for at_ms in done]
    demand(len(taken) == 5 and max(taken) < 40, f"they took {taken} ms")


@scenario
def one_epoch_is_kept() -> None:
    """For a savepoint every operator keeps its checkpoint of one and the same epoch, until that is let go of."""
    stage = Stage(chain(900, {"a": 2}, deep=True), workers=6)
    kept: list[set[tuple[int, bool]]] = []

    def look() -> None:
        controller, store = stage.world.controller, stage.world.store
        fixed = [controller.statuses[PartitionId(*name)] for name in (("a", 0), ("a", 1), ("b", 0))]
        there = {(s.fixed_epoch, s.fixed_version in store.checkpoints[s.partition]) for s in fixed}
        kept.append(there)

    def release() -> None:
        for replace in stage.world.controller.journal.replaces:
            stage.world.request(ReleaseEpoch(replace.number))

    stage.at(60.0, lambda: stage.world.request(FixEpoch()))
    stage.at(130.0, look)
    stage.at(230.0, look)
    stage.at(240.0, release)
    stage.play_through()
    demand(kept[0] == kept[1] and len(kept[0]) == 1 and next(iter(kept[0]))[1], f"{kept}")
    demand(not stage.world.controller.journal.replaces, "it is still kept")
    demand(all(stage.operator(p).pin.kept is None for p in ("a/0", "a/1", "b/0")), "a checkpoint is still pinned")


class Silent(Chained):
    """Remembers everything and says nothing, until very late."""

    def fold(self, moment: Moment, items: list[Item]) -> list[Item]:
        return [item for item in super().fold(moment, items) if moment.epoch > 60]


@scenario
def sink_without_rows() -> None:
    """What it is told is trimmed all the same, after a checkpoint's time."""
    stage = Stage(chain(900, a=partial(Silent, keys=17)))
    most = [0]

    def watch() -> None:
        if stage.find("a/0") is not None and stage.partition("a/0").running:
            most[0] = max(most[0], len(stage.operator("a/0").outputs.buffers["a>out"].entries))

    stage.play_through(watch)
    demand(most[0] < 20, f"{most[0]} epochs are kept for a sink without rows")


@scenario
def partitions_are_spread() -> None:
    """Those of one operator start on different workers, and the others where there is least."""
    stage = Stage(chain(200, {"s": 2, "a": 2, "out": 2}), workers=2)
    stage.play_through()
    for name in ("s", "a", "out"):
        live = stage.world.controller.journal.live(name)
        demand(len({entry.worker for entry in live}) == 2, f"{name}: {[entry.worker for entry in live]}")


@scenario
def what_cannot_begin_yet_waits() -> None:
    """Asked for while the operator is being replaced: it is done afterwards."""
    stage = Stage(chain(600))
    for at_ms, count in ((60.0, 2), (61.0, 4), (62.0, 3)):
        stage.scale(at_ms, "a", count)
    stage.play_through()
    live = len(stage.world.controller.journal.live("a"))
    demand(live == 3, f"{live} partitions, asked for 3")


@scenario
def lost_trim_is_said_again() -> None:
    """At its limit a source waits for its receiver to trim; that says so once, in vain, and then no more."""
    routes = {"s>out": by_key}
    nodes = {
        "s": Node("s", "source", partial(LightIntake, 5, 2, 200, 40, routes=routes)),
        "out": Node("out", "sink", LightOutlet),
    }
    stage = Stage(Graph(nodes, (Edge("s>out", "s", "out", 0),)), buffer_bytes=600, suspect_ms=1_000.0)
    stage.at(60.0, lambda: stage.cut(stage.host("out/0").name, stage.host("s/0").name, 30.0, both=False))
    stage.play_through()


class Collected(LightOutlet):
    """Shows nothing outside: its committed logs are the result, those of partitions that are gone, too."""

    def publish(self, commits: Sequence[tuple[int, Any, bool]]) -> int:
        self.shown = commits[-1][0]
        return -1


@scenario
def collected_rows_stay() -> None:
    """A sink that is handed over leaves all that it has committed."""
    flow = chain(300)
    stage = Stage(Graph({**flow.nodes, "out": Node("out", "sink", Collected)}, flow.edges))
    stage.scale(60.0, "out", 2)
    stage.play_through()
    for partition, log in stage.world.store.history.items():
        if partition.operator == "out":
            demand(stage.world.store.logs[partition] == log, f"{partition} has lost what it committed")


@scenario
def who_is_behind_is_told() -> None:
    """An operator is asleep: of it, and of whoever waits for it, it is said that it has epochs to take."""
    stage, told = Stage(chain(400), suspect_ms=1_000.0), dict[str, Any]()

    def ask() -> None:
        controller = stage.world.controller
        told.update({one["operator"]: one for one in progress(stage.graph, controller.journal, controller.statuses)})

    stage.at(40.0, lambda: setattr(stage.host("a/0"), "asleep_until", 120.0))
    stage.at(110.0, ask)
    stage.play_through()
    demand(set(told) == {"s", "a", "out"}, f"{told}")
    demand(told["a"]["behind_epochs"] > 3 and told["a"]["waits_for"].startswith("a/0: "), f"{told}")
    demand(told["out"]["waits_for"] == told["a"]["waits_for"], f"{told}")
    demand(told["s"]["behind_epochs"] == 0 and told["s"]["epoch"] > told["a"]["epoch"], f"{told}")


@scenario
def sources_are_told_what_to_forget() -> None:
    """Nothing that they were told to forget is asked for again, whoever dies; and they are told."""
    forgotten: dict[int, int] = {}

    class Keeps(LightIntake):
        def forget(self, split: int, end: int) -> None:
            demand(end >= forgotten.get(split, 0), f"split {split}: {end} after {forgotten}")
            forgotten[split] = end

        def read(self, split: int, position: Any, until: Any, limit_rows: int, now_ms: int) -> Reading | None:
            by_oracle = stage.world.controller.finished
            demand(by_oracle or (position or 0) >= forgotten.get(split, 0), f"split {split} is read from {position}")
            return super().read(split, position, until, limit_rows, now_ms)

    stage = Stage(chain(400, s=Keeps), checkpoint_ms=20.0)
    for at_ms, partition in ((60.0, "s/0"), (110.0, "a/0"), (150.0, "s/0")):
        stage.at(at_ms, partial(stage.crash, partition))
    stage.play_through()
    demand(len(forgotten) == 2 and min(forgotten.values()) > 100, f"{forgotten}")
