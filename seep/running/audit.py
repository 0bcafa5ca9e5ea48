"""The books of a flow at one epoch: every row that was put on an edge was taken from it, once.

The counters are state: they lie by bucket in the operators' checkpoints, by split in the sources' epoch logs, and in
the sinks' committed logs. So splits, merges, kills and replays do not blur them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seep.flow.fused import IN, OUT, TAILS
from seep.model.arrow import ArrowState
from seep.model.ids import PartitionId
from seep.partition.contract import Graph
from seep.protocol.effects import ReadLog
from seep.protocol.journal import Journal
from seep.state.checkpoint import Checkpoint

Counters = dict[str, int]
ELSEWHERE = ("filtered", "late", "errors", "skipped")


def audit_of(
    graph: Graph, journal: Journal, store: Any, epoch: int, checkpoints: Iterable[Checkpoint], sources: Any
) -> dict[str, Any]:
    """For each edge what was sent and taken up to the epoch; for each node where its rows went. ``balanced``: all."""
    nodes = counters_of(graph, checkpoints, sources)
    for node in graph.nodes.values():
        if node.kind == "sink":
            nodes[node.name] = {"in": _sunk(store, journal, node.name, epoch)}
    edges = [_edge(edge, nodes, graph) for edge in graph.edges]
    sinks = {
        node.name: {
            "sent": sent_to(graph, nodes, node.name),
            "committed": nodes[node.name]["in"],
        }
        for node in graph.nodes.values()
        if node.kind == "sink"
    }
    elsewhere = {
        name: {counter: number for counter, number in counters.items() if counter in ELSEWHERE and number}
        for name, counters in nodes.items()
    }
    return {
        "epoch": epoch,
        "balanced": all(e["sent"] == e["taken"] for e in edges if e["taken"] is not None)
        and all(s["sent"] == s["committed"] for s in sinks.values()),
        "read": {name: nodes[name].get("read", 0) for name in sources},
        "edges": edges,
        "sinks": sinks,
        "elsewhere": {name: counters for name, counters in elsewhere.items() if counters},
    }


def counters_of(graph: Graph, checkpoints: Iterable[Checkpoint], sources: Any) -> dict[str, Counters]:
    """By node: what the saved state of an operator, or the log of a source, has counted."""
    nodes: dict[str, Counters] = {name: {} for name in graph.nodes}
    for name, found in sources.items():
        for known in found["splits"].values():
            _add(nodes[name], known[5])
    for checkpoint in checkpoints:
        if isinstance(checkpoint.state, ArrowState):
            _add(nodes[checkpoint.partition.operator], counted_in(checkpoint.state))
    return nodes


def counted_in(state: ArrowState) -> Counters:
    """What an operator's saved state has counted."""
    found: Counters = {}
    for table in (TAILS, "counters"):
        if table in state.tables:
            rows = state.tables[table]
            for counter, number in zip(rows.column("name").to_pylist(), rows.column("count").to_pylist(), strict=True):
                _add(found, {counter: number})
    return found


def sent_to(graph: Graph, nodes: dict[str, Counters], sink: str) -> int:
    return sum(nodes[edge.source].get(OUT + edge.name, 0) for edge in graph.inputs(sink))


def _edge(edge: Any, nodes: dict[str, Counters], graph: Graph) -> dict[str, Any]:
    # What every partition takes is not counted there: it would be counted as often as there are partitions.
    counted = graph.nodes[edge.target].kind == "operator" and not edge.broadcast
    taken = nodes[edge.target].get(f"{IN}{edge.port}", 0) if counted else None
    return {"edge": edge.name, "sent": nodes[edge.source].get(OUT + edge.name, 0), "taken": taken}


def _sunk(store: Any, journal: Journal, sink: str, epoch: int) -> int:
    rows = 0
    for number in range(journal.next_number[sink]):
        reply = store.perform(ReadLog(0, PartitionId(sink, number)))
        totals = [total for at, (total, _) in (reply.value if reply and reply.value else ()) if at <= epoch]
        rows += totals[-1] if totals else 0
    return rows


def _add(counters: Counters, more: Counters) -> None:
    for name, number in more.items():
        counters[name] = counters.get(name, 0) + number
