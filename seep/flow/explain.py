"""What compiling made of a flow, in words: which steps run inside which node, how the rows of each edge find their
place, which of them are folded before they travel, which columns stay behind, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seep.flow.fused import LogicPlan, Route, Tail, Tails
from seep.flow.grouping import ByKey
from seep.partition.contract import Edge, Graph, Node

_MERGES = "its aggregates merge exactly in any grouping"


def explain(graph: Graph) -> list[dict[str, Any]]:
    """One entry for each node."""
    routes = {route.edge: route for node in graph.nodes.values() for route in _routes(_tails(node))}
    found = []
    for name, node in graph.nodes.items():
        settings = node.settings or {}
        entry: dict[str, Any] = {"node": name, "kind": node.kind, "verb": settings.get("verb", node.kind)}
        steps = list(_steps(_tails(node)))
        if steps:
            entry["fused"] = steps
        inputs = graph.inputs(name)
        if inputs:
            entry["inputs"] = [{"from": e.source, "sent": _sent(e, routes[e.name])} for e in inputs]
        if isinstance(node.make, LogicPlan):
            keyed = any(isinstance(routes[e.name].grouping, ByKey) for e in inputs if not e.broadcast)
            entry |= _folding(node.make, entry["verb"], keyed, sorted({e.source for e in inputs}))
        found.append(entry)
    return found


def _folding(plan: LogicPlan, verb: str, keyed: bool, senders: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if plan.unread:
        found["left_out"] = list(plan.unread)
    if plan.combine is not None or plan.reason:
        found["folded_by"] = senders if plan.combine is not None else []
        found["reason"] = plan.reason or _MERGES
    if plan.combine is not None:
        found["hot_keys"] = "folded at the sender, to one part for each sender, epoch and window"
    elif keyed:
        why = "its rows cannot be folded" if plan.reason else f"{verb} takes a key's rows one after the other"
        found["hot_keys"] = f"all rows of a key go to one place, since {why}"
    return found


def _sent(edge: Edge, route: Route) -> str:
    return "to every partition" if edge.broadcast else route.grouping.describe()


def _tails(node: Node) -> Tails:
    found: Tails = getattr(node.make, "tails", {})
    return found


def _routes(tails: Tails) -> Iterator[Route]:
    for followers in tails.values():
        for follower in followers:
            if isinstance(follower, Route):
                yield follower
            else:
                yield from _routes(follower.after)


def _steps(tails: Tails) -> Iterator[str]:
    for followers in tails.values():
        for follower in followers:
            if isinstance(follower, Tail):
                yield follower.step.name if hasattr(follower.step, "name") else follower.name
                yield from _steps(follower.after)


def lines(entry: dict[str, Any]) -> Iterator[str]:
    """An entry as text."""
    title = entry["kind"] if entry["verb"] == entry["kind"] else f"{entry['kind']}, {entry['verb']}"
    yield f"{entry['node']} ({title})"
    for given in entry.get("inputs", ()):
        yield f"  rows of {given['from']} are sent {given['sent']}"
    if entry.get("folded_by"):
        yield f"  rows are folded before they travel, by {', '.join(entry['folded_by'])}: {entry['reason']}"
    elif "folded_by" in entry:
        yield f"  rows travel as they are: {entry['reason']}"
    if "hot_keys" in entry:
        yield f"  hot keys: {entry['hot_keys']}"
    if "left_out" in entry:
        yield f"  columns left behind, since nobody reads them: {', '.join(entry['left_out'])}"
    if "fused" in entry:
        they = "they need" if len(entry["fused"]) > 1 else "it needs"
        yield f"  runs {', '.join(entry['fused'])} itself, since {they} no state"
