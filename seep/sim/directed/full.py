"""Output kept for replay has an end: who has reached it takes nothing more, and a Replace is not worth that."""

from __future__ import annotations

from typing import Any

from seep.protocol.effects import PutCheckpoint, StoreReply
from seep.sim.directed.registry import demand, scenario
from seep.sim.stage import Stage, chain
from seep.sim.world import SimNode

LIMIT_BYTES = 2_000
EPOCH_BYTES = 2_000
"""More than any one epoch has here."""


@scenario
def operator_that_keeps_too_much_takes_nothing() -> None:
    """The one behind it cannot save anything for a while."""
    stage = Stage(chain(1_200, deep=True), buffer_bytes=LIMIT_BYTES, checkpoint_ms=10.0)
    store, most, refused = stage.world._store, [0], [0]

    def away(node: SimNode, effect: Any) -> None:
        saves = isinstance(effect, PutCheckpoint) and effect.checkpoint.partition.operator == "b"
        if saves and stage.world.now_ms < 400.0:
            refused[0] += 1
            stage.at(0.1, lambda: stage.world._deliver(node, StoreReply(effect.token, error="failed")))
        else:
            store(node, effect)

    def watch() -> None:
        if stage.find("a/0") is not None:
            most[0] = max(most[0], stage.operator("a/0").outputs.size_bytes)

    stage.world._store = away  # type: ignore[method-assign]
    stage.play_through(watch)
    demand(refused[0] > 0 and most[0] >= LIMIT_BYTES, f"it never kept much: {most[0]} bytes")
    demand(most[0] < LIMIT_BYTES + EPOCH_BYTES, f"it kept {most[0]} bytes")


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
