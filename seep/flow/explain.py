"""What compiling made of a flow, in words: which steps run inside which node, which rows are folded before they travel,
and why others are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seep.flow.fused import LogicPlan, Tail, Tails
from seep.partition.contract import Graph


def explain(graph: Graph) -> list[dict[str, Any]]:
    """One entry for each node about which there is something to say."""
    found = []
    for name, node in graph.nodes.items():
        entry: dict[str, Any] = {"node": name}
        steps = list(_steps(getattr(node.make, "tails", {})))
        if steps:
            entry["fused"] = steps
        if isinstance(node.make, LogicPlan) and (node.make.combine is not None or node.make.reason):
            entry["folded_by"] = sorted({e.source for e in graph.inputs(name)}) if node.make.combine else []
            entry["reason"] = node.make.reason or "its aggregates merge exactly in any grouping"
        if len(entry) > 1:
            found.append(entry)
    return found


def _steps(tails: Tails) -> Iterator[str]:
    for followers in tails.values():
        for follower in followers:
            if isinstance(follower, Tail):
                yield follower.step.name if hasattr(follower.step, "name") else follower.name
                yield from _steps(follower.after)


def lines(entry: dict[str, Any]) -> Iterator[str]:
    """An entry as text."""
    name = entry["node"]
    if "fused" in entry:
        yield f"{name}: runs {', '.join(entry['fused'])} itself, since they need no state"
    if entry.get("folded_by"):
        yield f"{name}: rows are folded before they travel, by {', '.join(entry['folded_by'])}: {entry['reason']}"
    elif "folded_by" in entry:
        yield f"{name}: rows travel as they are: {entry['reason']}"
