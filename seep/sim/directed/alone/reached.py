"""How far each operator has come, and whom its watermark waits for: told of statuses written by hand."""

from __future__ import annotations

from typing import Any

from seep.control.progress import progress, shown_time
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Status
from seep.sim.directed.registry import demand, scenario

SECOND = 1_000_000
NEW_YEAR = 1_704_067_200 * SECOND
NODES = {"sales": "source", "offers": "source", "pairs": "operator", "minutes": "operator", "out": "sink"}
TIMELESS = Edge("names>pairs", "names", "pairs", 2, timeless=True)
PATH = (
    Edge("sales>pairs", "sales", "pairs", 0),
    Edge("offers>pairs", "offers", "pairs", 1),
    Edge("pairs>minutes", "pairs", "minutes", 0),
    Edge("minutes>out", "minutes", "out", 0),
)


def _said(*edges: Edge, **partitions: list[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """By operator; of each partition (epoch, watermark, idle); those not named are up to date."""
    entries, statuses = {}, {}
    kinds = {**NODES, **({"names": "source"} if edges else {})}
    for name in kinds:
        ones = partitions.get(name, [(100, NEW_YEAR)])
        for number, (part, one) in enumerate(zip(EVERYTHING.split(max(1, len(ones))), ones, strict=False)):
            epoch, watermark, idle = (*one, False)[:3]
            who = PartitionId(name, number)
            entries[who] = Entry(who, part, 1, FOREVER, LIVE, Generation(1, number), "w")
            statuses[who] = Status(who, Generation(1, number), 1, epoch, watermark=watermark, idle=idle)
    graph = Graph({name: Node(name, kind, None) for name, kind in kinds.items()}, (*PATH, *edges))
    return {one["operator"]: one for one in progress(graph, Journal(version=1, entries=entries), statuses)}


def _waits(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["waits_for"] for name, one in found.items()}


def _up_to(who: str, second: int) -> str:
    return f"{who}: its rows, less its lateness, have come up to {shown_time(NEW_YEAR - second * SECOND)}"


@scenario
def watermark_waits_for_the_source_with_the_least() -> None:
    found = _said(offers=[(100, NEW_YEAR), (90, NEW_YEAR - 60 * SECOND)])
    late = _up_to("offers/1", 60)
    wanted = {"sales": _up_to("sales/0", 0), "offers": late, "pairs": late, "minutes": late, "out": late}
    demand(_waits(found) == wanted, f"{_waits(found)}")
    told = {
        "operator": "offers",
        "kind": "source",
        "epoch": 90,
        "behind_epochs": 0,
        "watermark": "2023-12-31T23:59:00+00:00",
        "idle": False,
        "waits_for": late,
    }
    demand(found["offers"] == told, f"{found['offers']}")
    demand(found["pairs"]["kind"] == "operator" and found["pairs"]["behind_epochs"] == 0, f"{found['pairs']}")
    same = _said(offers=[(100, NEW_YEAR), (90, NEW_YEAR)])
    demand(same["offers"]["waits_for"].startswith("offers/1: "), "of two as late the one with fewer epochs")


@scenario
def who_has_epochs_to_take_is_named() -> None:
    """More than three: so many are always under way."""
    found = _said(minutes=[(100, NEW_YEAR), (40, NEW_YEAR - SECOND)], out=[(40, NEW_YEAR - SECOND)])
    slow = "minutes/1: it has 60 epochs to take that were sent to it"
    demand(_waits(found)["minutes"] == _waits(found)["out"] == slow, f"{_waits(found)}")
    demand(found["minutes"]["behind_epochs"] == 60 and found["out"]["behind_epochs"] == 0, f"{found}")
    demand(_waits(found)["pairs"] == _up_to("sales/0", 0), f"{_waits(found)}")
    for epoch, named in ((97, False), (96, True)):
        found = _said(pairs=[(epoch, NEW_YEAR - SECOND)], minutes=[(epoch, NEW_YEAR - SECOND)])
        demand(("epochs to take" in _waits(found)["minutes"]) == named, f"{_waits(found)}")
    least = _said(sales=[(50, NEW_YEAR)], pairs=[(45, NEW_YEAR - SECOND)])
    demand(least["pairs"]["behind_epochs"] == 5, f"{least['pairs']}")
    demand(least["minutes"]["behind_epochs"] == 0, "who is ahead is not behind")


@scenario
def sinks_mark_empty_epochs_only_now_and_then() -> None:
    demand(_said(out=[(80, NEW_YEAR)])["out"]["behind_epochs"] == 0, "it has all that there is")
    demand(_said(out=[(80, NEW_YEAR - SECOND)])["out"]["behind_epochs"] == 20, "it is behind")
    demand(_said(minutes=[(80, NEW_YEAR)])["minutes"]["behind_epochs"] == 20, "an operator is no sink")


@scenario
def idle_sources_hold_nobody_back() -> None:
    one = _said(offers=[(100, NEW_YEAR - 60 * SECOND, True)])
    demand(_waits(one)["pairs"] == _up_to("sales/0", 0) and one["offers"]["idle"], f"{one}")
    part = _said(offers=[(100, NEW_YEAR - 60 * SECOND, True), (100, NEW_YEAR)])
    demand(not part["offers"]["idle"] and part["offers"]["watermark"] == shown_time(NEW_YEAR), f"{part['offers']}")
    both = _said(offers=[(100, NEW_YEAR, True)], sales=[(100, NEW_YEAR, True)])
    idle = f"sales/0: all of it is idle, the watermark stays at {shown_time(NEW_YEAR)} until rows come"
    demand(_waits(both)["minutes"] == idle, f"{_waits(both)}")
    never = {name: [(100, BEGINNING, True)] for name in NODES}
    told = "sales/0: all of it is idle, there is no watermark yet until rows come"
    demand(set(_waits(_said(**never)).values()) >= {told}, f"{_waits(_said(**never))}")


@scenario
def who_has_no_event_time_is_named_where_others_have() -> None:
    none = [(100, BEGINNING)]
    found = _said(offers=none, pairs=none, minutes=none)
    demand(_waits(found)["minutes"] == "offers/0: no row with an event time has come", f"{_waits(found)}")
    demand(set(_waits(_said(**dict.fromkeys(NODES, none))).values()) == {""}, "no source has event time")
    operators = _said(**{**dict.fromkeys(NODES, none), "minutes": [(100, NEW_YEAR)]})
    demand(_waits(operators)["offers"] == "", "time that an operator has is no source's")
    table = _said(TIMELESS, names=none)
    demand(_waits(table)["pairs"] == _up_to("sales/0", 0), "an input without time is waited for")
    silent = _said(offers=[])
    demand("offers" not in silent and _waits(silent)["pairs"] == _up_to("sales/0", 0), f"{_waits(silent)}")


@scenario
def times_are_shown() -> None:
    end = _said(**{name: [(100, FOREVER)] for name in NODES})
    demand(set(_waits(end).values()) == {""} and end["out"]["watermark"] == "the end", f"{end}")
    shown = [shown_time(at) for at in (BEGINNING, BEGINNING + 1, 0, 1, FOREVER, FOREVER - 1)]
    early, late = f"{BEGINNING + 1} µs", f"{FOREVER - 1} µs"
    epoch = "1970-01-01T00:00:00"
    demand(shown == ["", early, f"{epoch}+00:00", f"{epoch}.000001+00:00", "the end", late], f"{shown}")
