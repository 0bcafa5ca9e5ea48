"""`seep explain`: who is slow, and whom a watermark waits for."""

from __future__ import annotations

from typing import Any

from seep.control.progress import progress
from seep.model.ids import BEGINNING, EVERYTHING, FOREVER, Generation, PartitionId
from seep.partition.contract import Edge, Graph, Node
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Status

SECOND = 1_000_000
NEW_YEAR = 1_704_067_200 * SECOND

NODES = {"sales": "source", "offers": "source", "pairs": "operator", "minutes": "operator", "out": "sink"}
GRAPH = Graph(
    {name: Node(name, kind, None) for name, kind in NODES.items()},
    (
        Edge("sales>pairs", "sales", "pairs", 0),
        Edge("offers>pairs", "offers", "pairs", 1),
        Edge("pairs>minutes", "pairs", "minutes", 0),
        Edge("minutes>out", "minutes", "out", 0),
    ),
)
UP_TO_DATE = {name: [(100, NEW_YEAR)] for name in NODES}


def said(**partitions: list[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """By operator; of each partition (epoch, watermark, idle)."""
    entries, statuses = {}, {}
    for name, ones in (UP_TO_DATE | partitions).items():
        for number, (part, one) in enumerate(zip(EVERYTHING.split(len(ones)), ones, strict=True)):
            epoch, watermark, idle = (*one, False)[:3]
            who = PartitionId(name, number)
            entries[who] = Entry(who, part, 1, FOREVER, LIVE, Generation(1, number), "w")
            statuses[who] = Status(who, Generation(1, number), 1, epoch, watermark=watermark, idle=idle)
    return {one["operator"]: one for one in progress(GRAPH, Journal(version=1, entries=entries), statuses)}


def test_a_watermark_waits_for_the_source_with_the_least() -> None:
    found = said(offers=[(100, NEW_YEAR), (100, NEW_YEAR - 60 * SECOND)])
    late = "offers/1: its rows, less its lateness, have come up to 2023-12-31T23:59:00+00:00"
    assert {one["waits_for"] for name, one in found.items() if name != "sales"} == {late}
    assert found["offers"]["watermark"] == "2023-12-31T23:59:00+00:00"


def test_who_has_epochs_to_take_holds_back_those_behind_it() -> None:
    found = said(minutes=[(100, NEW_YEAR), (40, NEW_YEAR - SECOND)], out=[(40, NEW_YEAR - SECOND)])
    assert found["minutes"]["behind_epochs"] == 60
    slow = "minutes/1: it has 60 epochs to take that were sent to it"
    assert found["minutes"]["waits_for"] == found["out"]["waits_for"] == slow
    assert found["pairs"]["waits_for"].startswith("sales/0: its rows, less its lateness, have come up to")


def test_a_sink_that_has_not_marked_empty_epochs_is_not_behind() -> None:
    assert said(out=[(80, NEW_YEAR)])["out"]["behind_epochs"] == 0
    assert said(out=[(80, NEW_YEAR - SECOND)])["out"]["behind_epochs"] == 20


def test_idle_sources_hold_nobody_back_and_all_of_them_are_named() -> None:
    one = said(offers=[(100, NEW_YEAR - 60 * SECOND, True)])
    assert one["pairs"]["waits_for"].startswith("sales/0: its rows, less its lateness, have come up to")
    both = said(offers=[(100, NEW_YEAR, True)], sales=[(100, NEW_YEAR, True)])
    idle = "sales/0: all of it is idle, the watermark stays at 2024-01-01T00:00:00+00:00 until rows come"
    assert both["minutes"]["waits_for"] == idle


def test_a_source_without_rows_is_named_where_others_have_event_time() -> None:
    found = said(offers=[(100, BEGINNING)], pairs=[(100, BEGINNING)], minutes=[(100, BEGINNING)])
    assert found["minutes"]["waits_for"] == "offers/0: no row with an event time has come"
    untimed = said(**{name: [(100, BEGINNING)] for name in NODES})
    assert {one["waits_for"] for one in untimed.values()} == {""}


def test_at_the_end_nobody_waits() -> None:
    assert {one["waits_for"] for one in said(**{name: [(100, FOREVER)] for name in NODES}).values()} == {""}
