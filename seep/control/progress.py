"""Why is this window not out yet: how far each operator has come, and whom its watermark waits for.

A watermark is the least of those that come in. So whoever holds it back is found by walking from an operator to the
input with the least, until a source is reached (no later event time has come there) or somebody on the way has not
taken yet what his own inputs have announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from seep.model.ids import BEGINNING, FOREVER, PartitionId
from seep.partition.contract import Graph
from seep.protocol.journal import Journal
from seep.protocol.messages import Status

BEHIND_EPOCHS = 3
"""So many are under way between two operators on a machine that keeps up."""
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reached:
    """How far an operator has come: as far as the last of its partitions."""

    epoch: int
    watermark: int
    idle: bool
    """Nobody waits for it: all that it reads, or all that comes in, is idle."""
    last: str
    """The partition that is furthest behind."""


def progress(graph: Graph, journal: Journal, statuses: Mapping[PartitionId, Status]) -> list[dict[str, Any]]:
    """One entry for each operator that has said something: ``epoch``, ``behind_epochs`` (to what its senders have
    announced), ``watermark``, ``waits_for`` (empty: nothing)."""
    reached = {name: found for name in graph.nodes if (found := _reached(journal, statuses, name)) is not None}
    return [
        {
            "operator": name,
            "kind": graph.nodes[name].kind,
            "epoch": one.epoch,
            "behind_epochs": max(0, _announced(graph, reached, name) - one.epoch),
            "watermark": shown_time(one.watermark),
            "idle": one.idle,
            "waits_for": _waits_for(graph, reached, name),
        }
        for name, one in reached.items()
    ]


def shown_time(watermark: int) -> str:
    """
    >>> shown_time(1_704_067_200_000_000), shown_time(BEGINNING), shown_time(FOREVER)
    ('2024-01-01T00:00:00+00:00', '', 'the end')
    """
    if watermark >= FOREVER:
        return "the end"
    try:
        return (_ORIGIN + timedelta(microseconds=watermark)).isoformat() if watermark > BEGINNING else ""
    except OverflowError:
        return f"{watermark} µs"


def _reached(journal: Journal, statuses: Mapping[PartitionId, Status], name: str) -> Reached | None:
    found = [statuses[entry.partition] for entry in journal.live(name) if entry.partition in statuses]
    if not found:
        return None
    awake = [status for status in found if not status.idle] or found
    last = min(awake, key=lambda status: (status.watermark, status.epoch))
    epoch = min(status.epoch for status in found)
    return Reached(epoch, last.watermark, all(status.idle for status in found), journal.shown(last.partition))


def _announced(graph: Graph, reached: Mapping[str, Reached], name: str) -> int:
    """The epoch that all of its senders have come to."""
    one, senders = reached[name], [reached[edge.source] for edge in graph.inputs(name) if edge.source in reached]
    if graph.nodes[name].kind == "sink" and all(one.watermark >= sender.watermark for sender in senders):
        return one.epoch  # it marks epochs without rows only now and then
    return min((sender.epoch for sender in senders), default=one.epoch)


def _waits_for(graph: Graph, reached: Mapping[str, Reached], name: str) -> str:
    one = reached[name]
    if one.watermark >= FOREVER:
        return ""
    inputs = {edge.source: edge for edge in graph.inputs(name) if edge.source in reached and not edge.timeless}
    if not inputs:
        timed = any(graph.nodes[other].kind == "source" and r.watermark > BEGINNING for other, r in reached.items())
        return _source_waits(one) if timed or one.idle else ""
    behind = _announced(graph, reached, name) - one.epoch
    if behind > BEHIND_EPOCHS:
        return f"{one.last}: it has {behind} epochs to take that were sent to it"
    awake = {source: edge for source, edge in inputs.items() if not reached[source].idle} or inputs
    slowest = min(awake, key=lambda source: awake[source].watermark(reached[source].watermark))
    return _waits_for(graph, reached, slowest)


def _source_waits(one: Reached) -> str:
    """(Of a flow in which some source has event time.)"""
    partition, at = one.last, shown_time(one.watermark)
    if one.idle:
        stays = f"the watermark stays at {at}" if at else "there is no watermark yet"
        return f"{partition}: all of it is idle, {stays} until rows come"
    if not at:
        return f"{partition}: no row with an event time has come"
    return f"{partition}: its rows, less its lateness, have come up to {at}"
