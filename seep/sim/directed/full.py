"""Output kept for replay has an end: who has reached it takes nothing more, and a Replace is not worth that."""

from __future__ import annotations

from typing import Any

from seep.partition.operator import OperatorPartition
from seep.partition.source import SourcePartition
from seep.protocol.effects import PutCheckpoint, StoreReply
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain
from seep.sim.world import SimNode

LIMIT_BYTES = 2_000
EPOCH_BYTES = 2_000
"""More than any one epoch has here."""


def _most_kept(keeper: str, behind: str, deep: bool) -> int:
    """By one while the one behind it cannot save anything for a time."""
    stage = Stage(chain(1_200, deep=deep), buffer_bytes=LIMIT_BYTES, checkpoint_ms=10.0)
    store, most = stage.world._store, [0]

    def away(node: SimNode, effect: Any) -> None:
        saves = isinstance(effect, PutCheckpoint) and effect.checkpoint.partition.operator == behind
        if saves and stage.world.now_ms < 400.0:
            stage.at(0.1, lambda: stage.world._deliver(node, StoreReply(effect.token, error="failed")))
        else:
            store(node, effect)

    def watch() -> None:
        if stage.find(keeper) is not None:
            found = stage.partition(keeper)
            assert isinstance(found, SourcePartition | OperatorPartition)
            most[0] = max(most[0], found.outputs.size_bytes)

    stage.world._store = away  # type: ignore[method-assign]
    stage.play_through(watch)
    demand(most[0] >= LIMIT_BYTES, f"it never kept much: {most[0]} bytes")
    return most[0]


@scenario
def operator_that_keeps_too_much_takes_nothing() -> None:
    most = _most_kept("a/0", "b", deep=True)
    demand(most < LIMIT_BYTES + EPOCH_BYTES, f"it kept {most} bytes")


@scenario
def source_that_keeps_too_much_cuts_nothing() -> None:
    most = _most_kept("s/0", "a", deep=False)
    demand(most < LIMIT_BYTES + EPOCH_BYTES, f"it kept {most} bytes")


@scenario
def replace_that_keeps_too_much_is_given_up() -> None:
    """Its shadow hangs: what is kept for it holds up the flow, long before it would have taken too long."""
    stage = Stage(chain(1_200, deep=True), buffer_bytes=LIMIT_BYTES, checkpoint_ms=10.0, suspect_ms=5_000.0)

    def hang() -> None:
        stage.host("b/1").asleep_until = stage.world.now_ms + 4_000.0

    stage.scale(60.0, "b", 2)
    stage.when(lambda: stage.find("b/1") is not None, hang, every_ms=0.05)
    stage.play_through()
    demand("too much is kept for it" in " ".join(stage.given_up()), f"given up: {stage.given_up()}")
    demand(stage.world.now_ms < 2_000.0, f"the flow stood still until {stage.world.now_ms:.0f} ms")


@scenario
def what_waits_for_the_slowest_is_known() -> None:
    """One that hears nothing: as many epochs wait for it as were cut since, until it hears again."""
    stage = Stage(chain(400), credit_epochs=4)
    most = [0]

    def watch() -> None:
        if stage.find("s/0") is not None:
            found = stage.partition("s/0")
            assert isinstance(found, SourcePartition)
            most[0] = max(most[0], found.outputs.waiting)

    stage.at(40.0, lambda: stage.cut(stage.host("s/0").name, stage.host("a/0").name, 60.0))
    stage.play_through(watch)
    demand(most[0] > 4, f"never more than {most[0]} epochs waited")
