"""What was asked for, as the first step of a Replace: another number of partitions, other ranges, other code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seep.control import planner
from seep.control.balance import Loads, changed, plan_rebalance, plan_scale
from seep.control.requests import FixEpoch, Rebalance, ReleaseEpoch, ScaleTo, Upgrade
from seep.errors import Misuse
from seep.model.counts import whole
from seep.model.ids import KeyRange, PartitionId
from seep.partition.contract import Graph, Node
from seep.protocol.journal import LIVE, Entry, Journal
from seep.protocol.messages import Status

Statuses = Mapping[PartitionId, Status]


def check_count(node: Node, count: Any) -> int:
    """The number of partitions that was asked for; refuses one that the operator may not have."""
    number = count if type(count) is int else whole("count", count)
    if not node.minimum <= number <= node.maximum:
        raise Misuse(f"{node.name} may have {node.minimum} to {node.maximum} partitions, not {number}")
    return number


def begin_request(
    graph: Graph, journal: Journal, statuses: Statuses, request: ScaleTo | Rebalance | Upgrade | FixEpoch | ReleaseEpoch
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
        case Rebalance():
            return _rebalance(graph, journal, statuses, request)
        case Upgrade():
            return _upgrade(journal, statuses, request)


def _fix_epoch(graph: Graph, journal: Journal, statuses: Statuses) -> Journal | None:
    at_rest = all(e.role == LIVE for e in journal.entries.values()) and not journal.replaces
    if not at_rest or len(statuses) < len(journal.entries):
        return None
    old = [p for p in journal.entries if graph.nodes[p.operator].kind == "operator"]
    return planner.begin(journal, "", old, (), 2 + max(s.epoch for s in statuses.values()), handover=False)


def _scale(graph: Graph, journal: Journal, statuses: Statuses, request: ScaleTo) -> tuple[Journal | None, str]:
    live = journal.live(request.operator)
    if not _may_begin(journal, statuses, request.operator, live):
        return None, ""
    old, ranges = plan_scale(live, max(1, request.count), loads_of(statuses))
    if not old:
        return journal, ""
    begun = _begin(graph, journal, statuses, request.operator, old, ranges)
    return begun, f"{request.operator}: {len(live)} -> {request.count} partitions"


def _rebalance(graph: Graph, journal: Journal, statuses: Statuses, request: Rebalance) -> tuple[Journal | None, str]:
    live = journal.live(request.operator)
    if not _may_begin(journal, statuses, request.operator, live):
        return None, ""
    ranges, why = plan_rebalance(live, loads_of(statuses))
    if not ranges:
        return journal, f"{request.operator}: not rebalanced, {why}"
    old, ranges = changed(live, ranges)
    return _begin(graph, journal, statuses, request.operator, old, ranges), f"{request.operator}: rebalanced, {why}"


def _upgrade(journal: Journal, statuses: Statuses, request: Upgrade) -> tuple[Journal | None, str]:
    live = journal.live(request.operator)
    if not _may_begin(journal, statuses, request.operator, live):
        return None, ""
    old = [entry.partition for entry in live]
    begun = planner.begin(journal, request.operator, old, (), 0, handover=False, code=request.code)
    return begun, f"{request.operator}: upgrade to {request.code[:12]}"


def loads_of(statuses: Statuses) -> Loads:
    return {partition: status.load for partition, status in statuses.items() if status.load}


def _may_begin(journal: Journal, statuses: Statuses, operator: str, live: Sequence[Entry]) -> bool:
    """One Replace of an operator at a time, and only from what is known to run."""
    busy = any(r.operator in (operator, "") for r in journal.replaces)
    return bool(live) and not busy and all(e.partition in statuses for e in live)


def _begin(
    graph: Graph,
    journal: Journal,
    statuses: Statuses,
    operator: str,
    old: Sequence[PartitionId],
    ranges: Sequence[KeyRange],
) -> Journal:
    handover = graph.nodes[operator].kind != "operator"
    merges = any(sum(journal.entries[p].key_range.overlaps(r) for p in old) > 1 for r in ranges)
    at = 2 + max(statuses[p].epoch for p in old) if merges and not handover else 0
    return planner.begin(journal, operator, old, ranges, at, handover)
