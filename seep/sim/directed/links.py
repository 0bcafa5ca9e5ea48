"""Messages are lost: the gap shows, or the silence does."""

from __future__ import annotations

from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain


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
    demand(cuts == 3, "the schedule did not get where it should")


@scenario
def last_frame_lost_before_a_pause() -> None:
    """Nothing follows the lost frame, so no gap ever shows: only silence tells."""
    stage = Stage()

    def last_words() -> None:
        stage.cut(stage.host("a/0").name, stage.host("out/0").name, 10.0, both=False)

    stage.when(lambda: stage.find("s/0") is not None and stage.partition("s/0").ended, last_words)
    stage.play_through()


@scenario
def sink_that_is_behind_in_a_hand_over() -> None:
    """One of two sink partitions hears nothing while they are merged: the new one waits for what it has to commit."""
    stage = Stage(chain(400, starts={"out": 2}))

    def cut() -> None:
        stage.cut(stage.host("a/0").name, stage.host("out/1").name, 60.0)

    stage.at(55.0, cut)
    stage.scale(75.0, "out", 1)
    stage.play_through()
    demand(len(stage.world.controller.journal.live("out")) == 1, "they were not merged")
