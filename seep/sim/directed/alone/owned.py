"""What a source partition knows of its splits: who owns which, what is idle, and how far time has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, KeyRange
from seep.partition.splits import Splits
from seep.partition.told import Told
from seep.sim.directed.registry import demand, scenario


class Plain:
    """Only as much of an intake as is asked for here."""

    splits = 4
    lateness_us = 7
    idle_ms: int | None = 10


class Growing(Plain):
    """Of split 1 nobody knows whether there are rows that have not got here."""

    grows = True

    def __init__(self) -> None:
        self.more: dict[int, Any] = {}

    def begins(self, split: int) -> Any:
        return 100 * split

    def appeared(self, wall_ms: int) -> Mapping[int, Any]:
        return self.more

    def caught_up(self, split: int, position: Any) -> bool:
        return split != 1 or position == 150


def _splits(key_range: KeyRange = EVERYTHING, intake: Any = None) -> Splits:
    return Splits(intake or Plain(), key_range)  # type: ignore[arg-type]


@scenario
def splits_belong_to_whoever_owns_their_bucket() -> None:
    low, high = EVERYTHING.split(2)
    found = [list(_splits(part).known) for part in (EVERYTHING, low, high)]
    demand(found == [[0, 1, 2, 3], [0, 1], [2, 3]], f"{found}")
    demand(_splits().known[2] == [None, None, BEGINNING, False, 0, {}], f"{_splits().known[2]}")
    growing = Growing()
    splits = _splits(low, growing)
    demand(splits.known[1] == [100, 100, BEGINNING, False, 0, {}], f"{splits.known[1]}")
    growing.more = {5: 55, 6: 66, 0: 99, 4: 44}
    splits.grow(70)
    # Backwards 4 is at 512, 5 at 2560, 6 at 1536.
    demand(list(splits.known) == [0, 4, 1, 6], f"{splits.known}")
    demand(splits.known[4] == [44, 44, BEGINNING, False, 70, {}], f"{splits.known[4]}")
    demand(splits.known[0][0] == 0, "one that is known begins anew")
    splits.known[4][4] = 71
    splits.grow(90)
    demand(splits.known[4][4] == 71, "it is taken up again")
    splits.inherit([(1, [3, 8, 90, True, 60, {"read": 5}]), (2, [0, 0, 0, False, 0, {}])])
    demand(splits.known[1] == [8, 8, 90, True, 60, {"read": 5}] and 2 not in splits.known, f"{splits.known}")
    demand(list(splits.known) == [0, 4, 1, 6], "their order has changed")
    record = {"1": [1], "4": [4], "0": [0], "2": [2]}
    demand([split for split, _ in splits.in_order(record)] == [0, 4, 1, 2], "a log's are in another order")


@scenario
def idle_and_ended_splits_hold_no_time_back() -> None:
    splits = _splits()
    for split, (time, ended, heard_ms) in enumerate(
        ((50, False, 95), (30, True, 100), (90, False, 91), (20, False, 90))
    ):
        splits.known[split][2:5] = [time, ended, heard_ms]
    demand([known[2] for known in splits.active(100)] == [50, 90], f"{splits.active(100)}")
    demand(splits.watermark(100, 5) == 43, f"{splits.watermark(100, 5)}")
    demand(splits.watermark(99, 5) == 13, "one that is not idle yet")
    demand(splits.watermark(200, 5) == 5, "all are idle: it stays where it was")
    demand(splits.reached() == 83 and not splits.ended, f"{splits.reached()}")
    splits.known[0][2] = BEGINNING
    demand(splits.watermark(100, 5) == BEGINNING, "one has no time yet")
    for known in splits.known.values():
        known[3] = True
    demand(splits.ended and splits.watermark(100, 5) == FOREVER, "all have ended")
    patient = Plain()
    patient.idle_ms = None
    waits = _splits(intake=patient)
    demand(len(waits.active(10**9)) == 4 and waits.reached() == BEGINNING, "none is ever idle")
    growing = _splits(intake=Growing())
    for known in growing.known.values():
        known[3] = True
    demand(not growing.ended and growing.watermark(0, 5) == 5, "more may come")
    nobody = _splits(KeyRange(1, 2))
    demand(nobody.known == {} and nobody.ended and nobody.reached() == BEGINNING, "of none")
    demand(not _splits(KeyRange(1, 2), Growing()).ended, "it may get one")


@scenario
def silence_is_no_silence_where_rows_may_be_under_way() -> None:
    splits = _splits(intake=Growing())
    for split, position, heard_ms in ((0, 0, 5), (1, 100, 60), (1, 150, 60)):
        known = splits.known[split]
        known[1], before = position, 5 if heard_ms == 5 else 0
        known[4] = before
        splits.nothing_came(split, known, 60)
        demand(known[4] == (60 if (split, position) == (1, 100) else before), f"{split} at {position}: {known}")
    plain = _splits()
    plain.nothing_came(1, plain.known[1], 60)
    demand(plain.known[1][4] == 0, "one that does not say")
    plain.known[0][5] = {"errors": 2, "read": 9}
    plain.known[3][5] = {"errors": 3, "skipped": 1}
    demand(plain.refused() == {"errors": 5, "skipped": 1}, f"{plain.refused()}")


class Listening(Plain):
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def forget(self, split: int, end: Any) -> None:
        self.heard.append(("forget", split, end))

    def drained(self, split: int, position: Any) -> bool:
        self.heard.append(("drained", split, position))
        return bool(position)

    def close(self) -> None:
        self.heard.append(("close",))


@scenario
def sources_hear_what_nobody_asks_for_again() -> None:
    intake = Listening()
    told = Told(intake)  # type: ignore[arg-type]
    for epoch in (3, 5, 9):
        told.announced(epoch, {0: [0, 10 * epoch], 1: [0, None]})
    for upto, wanted in ((2, []), (4, [30]), (4, []), (8, [50]), (20, [90]), (30, [])):
        intake.heard.clear()
        told.trimmed(upto)
        demand(intake.heard == [("forget", 0, end) for end in wanted], f"up to {upto}: {intake.heard}")
    intake.heard.clear()
    demand(not told.drained({0: [0, 0], 1: [0, 5]}), "one has rows left")
    demand(intake.heard == [("drained", 0, 0), ("drained", 1, 5)], f"not all were told: {intake.heard}")
    demand(told.drained({0: [0, 4], 1: [0, 5]}), "all is read")
    told.close()
    demand(intake.heard[-1] == ("close",), "it is not closed")
    deaf = Told(Plain())  # type: ignore[arg-type]
    deaf.announced(1, {0: [0, 1]})
    deaf.trimmed(1)
    deaf.close()
    demand(deaf.drained({0: [0, 0]}), "one that need not be told")
