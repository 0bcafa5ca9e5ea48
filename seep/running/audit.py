"""The books of a flow at one epoch: every row a source read is accounted for, edge by edge.

What an operator took in is compared with what its senders put out: the counters are state (by bucket, saved with the
checkpoint), so splits, merges and replays do not blur them.
"""

from __future__ import annotations

from typing import Any

from seep.model.ids import BUCKETS
from seep.partition.contract import Graph
from seep.runtime.controller import View

LOSSES = ("late", "filtered", "errors")


def audit_of(graph: Graph, view: View, store: Any, epoch: int) -> dict[str, Any]:
    """One line for each node: rows in and out, and where the others went."""
    lines: dict[str, dict[str, int]] = {}
    for name in graph.nodes:
        line: dict[str, int] = {}
        for entry in view.journal.live(name):
            status = view.statuses.get(entry.partition)
            for counter, number in (status.statistics if status else {}).items():
                line[counter] = line.get(counter, 0) + number
        lines[name] = line
    return {"epoch": epoch, "operators": lines, "buckets": BUCKETS}
