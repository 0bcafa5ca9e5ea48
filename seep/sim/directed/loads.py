"""Key ranges that follow the load, and partitions without hope."""

from __future__ import annotations

from dataclasses import replace as with_fields

from seep.control.deaths import HOPELESS
from seep.control.requests import Rebalance
from seep.control.scaling import begin_request
from seep.model.ids import BUCKETS, GROUP_BUCKETS, PartitionId
from seep.sim.directed.registry import demand, scenario
from seep.sim.light import LightIntake, Row, bucket_of
from seep.sim.stage import Stage, chain

LOW_KEYS = [key for key in range(200) if bucket_of(key) < BUCKETS // 2]
HIGH_KEYS = [key for key in range(200) if bucket_of(key) >= BUCKETS // 2]


class Uneven(LightIntake):
    """Fifteen rows of sixteen have a key of the lower half."""

    def row(self, split: int, index: int) -> Row:
        noise, value, time = super().row(split, index)[0] * 7919 + index, *super().row(split, index)[1:]
        keys = LOW_KEYS if index % 16 else HIGH_KEYS
        return keys[noise % len(keys)], value, time


class OneKey(LightIntake):
    """Nearly all rows have the same one."""

    def row(self, split: int, index: int) -> Row:
        _, value, time = super().row(split, index)
        return (LOW_KEYS[0] if index % 16 else HIGH_KEYS[0]), value, time


def _notes(stage: Stage, words: str) -> list[str]:
    return [what for _, what in stage.world.controller.decisions if words in what]


@scenario
def ranges_follow_the_load() -> None:
    """Two halves with very different loads: afterwards each partition has about half of the rows, and it stays so."""
    stage = Stage(chain(1_600, s=Uneven, starts={"a": 2}), epoch_ms=2.0)
    for at_ms in (120.0, 260.0):
        stage.at(at_ms, lambda: stage.world.request(Rebalance("a")))
    stage.play_through()
    live = stage.world.controller.journal.live("a")
    share = sum(bucket_of(key) in live[0].key_range for key in LOW_KEYS) / len(LOW_KEYS)
    demand(0.4 < share < 0.66, f"the first partition has {share:.2f} of the busy keys")
    demand(len(_notes(stage, "not rebalanced, already balanced")) == 1, "it is not left as it is the second time")


@scenario
def who_has_its_share_is_left_alone() -> None:
    """Of four the last two have a quarter of the rows each: only the edge between the other two is moved."""
    stage = Stage(chain(400, starts={"a": 4}))
    controller = stage.world.controller
    stage.world.run_until(lambda: len(controller.statuses) == 6, 100.0)
    journal, groups = controller.journal, BUCKETS // GROUP_BUCKETS
    statuses = dict(controller.statuses)
    for number, rows in enumerate((18, 6, 12, 12)):
        who, quarter = PartitionId("a", number), groups // 4
        load = [rows if group // quarter == number else 0 for group in range(groups)]
        statuses[who] = with_fields(statuses[who], load=tuple(load))
    begun, why = begin_request(stage.graph, journal, statuses, Rebalance("a"))
    demand(begun is not None and len(begun.replaces) == 1, f"nothing was begun: {why}")
    assert begun is not None
    (moved,) = begun.replaces
    demand(moved.old == (PartitionId("a", 0), PartitionId("a", 1)), f"replaced: {moved.old}")
    edges = [0, round(BUCKETS / 6), BUCKETS // 2]
    demand([r.low for r in moved.ranges] == edges[:2] and moved.ranges[-1].high == edges[2], f"by {moved.ranges}")


@scenario
def parts_of_a_dead_one_share_its_load() -> None:
    """Of a partition that comes back as two, each has about half of the rows."""
    stage = Stage(chain(1_600, s=Uneven), parts=2, epoch_ms=2.0)
    stage.at(120.0, lambda: stage.crash("a/0"))
    stage.play_through()
    live = stage.world.controller.journal.live("a")
    share = sum(bucket_of(key) in live[0].key_range for key in LOW_KEYS) / len(LOW_KEYS)
    demand(len(live) == 2 and 0.4 < share < 0.66, f"the first of {len(live)} has {share:.2f} of the busy keys")


@scenario
def one_busy_key_is_not_moved_about() -> None:
    """Loads are measured by groups of buckets: cut after cut the key's own bucket is found. Then nothing helps, nothing
    is replaced any more, and the reason is told."""
    stage = Stage(chain(5_000, s=OneKey, starts={"a": 2}), epoch_ms=2.0)
    for at_ms in range(120, 1_600, 120):
        stage.at(at_ms, lambda: stage.world.request(Rebalance("a")))
    stage.play_through()
    notes = _notes(stage, "rebalanced, ")
    demand(len(notes) == 13 and all("nothing to gain" in note for note in notes[8:]), f"{notes}")


@scenario
def partition_without_hope() -> None:
    """Whoever starts it dies: after so many deaths the flow stops and says who it was."""
    stage = Stage(chain(600))
    deaths = 0

    def watch() -> None:
        nonlocal deaths
        if stage.find("a/0") is not None:
            deaths += 1
            stage.crash("a/0")

    report = stage.play(watch)
    demand(f"a/0 died {HOPELESS} times at epoch" in report, f"stopped with {report!r}")
    demand(deaths == HOPELESS, f"{deaths} deaths")
