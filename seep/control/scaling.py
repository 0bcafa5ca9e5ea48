"""What was asked for, as the first step of a Replace: how an operator gets to another number of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from seep.control import planner
from seep.control.requests import FixEpoch, ReleaseEpoch, ScaleTo
from seep.model.ids import PartitionId
from seep.partition.contract import Graph
from seep.protocol.journal import LIVE, Journal
from seep.protocol.messages import Status

Statuses = Mapping[PartitionId, Status]


def begin_request(
    graph: Graph, journal: Journal, statuses: Statuses, request: ScaleTo | FixEpoch | ReleaseEpoch
) -> tuple[Journal | None, str]:
    """The journal with the request begun (None: not yet), and what to note of it."""
    match request:
        case ReleaseEpoch():
            fixed = [r for r in journal.replaces if r.number == request.number]
            return (planner.abort(journal, fixed[0]) if fixed else journal), ""
        case FixEpoch():
            return _fix_epoch(graph, journal, statuses), ""
        case ScaleTo():
            return _scale(graph, journal, statuses, request)


def _fix_epoch(graph: Graph, journal: Journal, statuses: Statuses) -> Journal | None:
    at_rest = all(e.role == LIVE for e in journal.entries.values()) and not journal.replaces
    if not at_rest or len(statuses) < len(journal.entries):
        return None
    old = [p for p in journal.entries if graph.nodes[p.operator].kind == "operator"]
    return planner.begin(journal, "", old, (), 2 + max(s.epoch for s in statuses.values()), handover=False)


def _scale(graph: Graph, journal: Journal, statuses: Statuses, request: ScaleTo) -> tuple[Journal | None, str]:
    live = journal.live(request.operator)
    busy = any(r.operator in (request.operator, "") for r in journal.replaces)
    if busy or not live or any(e.partition not in statuses for e in live):
        return None, ""
    old, ranges = planner.plan_scale(live, max(1, request.count))
    if not old:
        return journal, ""
    handover = graph.nodes[request.operator].kind != "operator"
    merges = any(sum(e.key_range.overlaps(r) for e in live) > 1 for r in ranges)
    at = 2 + max(statuses[p].epoch for p in old) if merges and not handover else 0
    begun = planner.begin(journal, request.operator, old, ranges, at, handover)
    return begun, f"{request.operator}: {len(live)} -> {request.count} partitions"
