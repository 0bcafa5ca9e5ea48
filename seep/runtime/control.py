"""The verbs on a running job, in the words users know: operators and positions, not ids and generations."""

from __future__ import annotations

from typing import Any

from seep.control.balance import plan_rebalance
from seep.control.governor import shown
from seep.control.progress import progress
from seep.control.requests import Rebalance, ScaleTo, StopFlow
from seep.control.scaling import loads_of
from seep.errors import Misuse, error_of
from seep.model.ids import KeyRange
from seep.protocol.journal import LIVE
from seep.runtime.controller import ControllerHost
from seep.runtime.job import metrics_place, place_of
from seep.runtime.watch import Watch


class HostControl:
    """`JobControl`'s part that needs nothing but the controller's host."""

    def __init__(self, flow: str, host: ControllerHost, watch: Watch, metrics_port: int = 0) -> None:
        """`metrics_port`: where the controller serves its own numbers; 0: nowhere."""
        self.flow = flow
        self.host = host
        self.watch = watch
        self.metrics_port = metrics_port

    def status(self) -> dict[str, Any]:
        view = self.host.view
        operators: dict[str, Any] = {}
        for name in self.host.machine.graph.nodes:
            entries = [e for e in view.journal.of(name) if e.role == LIVE]
            operators[name] = [
                {
                    "partition": str(entry.partition),
                    "buckets": [entry.key_range.low, entry.key_range.high],
                    "worker": entry.worker,
                    "epoch": status.epoch if status else None,
                    "busy_seconds": round(view.busy[entry.partition].busy_ms / 1000, 1)
                    if entry.partition in view.busy
                    else 0.0,
                    "ended": bool(status and status.ended),
                    "statistics": dict(status.statistics) if status else {},
                }
                for entry in entries
                for status in [view.statuses.get(entry.partition)]
            ]
        return {
            "flow": self.flow,
            "outcome": self.host.outcome or "running",
            "report": str(error_of(self.host.report)),
            "journal_version": view.journal.version,
            "replaces": len(view.journal.replaces),
            "workers": list(view.workers),
            "kinds": {node.name: node.kind for node in self.host.machine.graph.nodes.values()},
            "operators": operators,
        }

    def targets(self) -> list[dict[str, Any]]:
        places = [metrics_place(card) for card in self.host.job.registered().values()]
        if self.metrics_port:
            places.append(place_of(self.host.job.address, self.metrics_port))
        return [{"targets": places, "labels": {"flow": self.flow}}]

    def explain(self, operator: str | None = None) -> dict[str, Any]:
        if operator is not None:
            self._known(operator)
        view, graph = self.host.view, self.host.machine.graph
        reached = progress(graph, view.journal, view.statuses)
        decisions = [d for d in self.watch.decisions() if operator in (None, d.operator) or not d.operator]
        return {
            "flow": self.flow,
            "outcome": self.host.outcome or "running",
            "progress": [one for one in reached if operator in (None, one["operator"])],
            "decisions": shown(decisions),
            "counts": dict(self.watch.governor.counts),
            "pool": {"wanted": view.wanted, "there": len(view.workers), "shortage": view.shortage},
            "steps": [{"at_ms": round(at_ms), "what": what} for at_ms, what in view.decisions],
            "policies": {
                name: node.policy if isinstance(node.policy, str) else type(node.policy).__name__
                for name, node in graph.nodes.items()
                if node.policy is not None
            },
        }

    def scale(self, operator: str, count: int) -> dict[str, Any]:
        node = self.host.machine.graph.nodes[self._known(operator)]
        if not node.minimum <= count <= node.maximum:
            raise Misuse(f"{operator} may have {node.minimum} to {node.maximum} partitions, not {count}")
        self.host.request(ScaleTo(operator, count))
        return {"operator": operator, "count": count}

    def rebalance(self, operator: str) -> dict[str, Any]:
        """``rebalanced``: whether it was asked for; ``why`` (not)."""
        kind = self.host.machine.graph.nodes[self._known(operator)].kind
        if kind != "operator":
            raise Misuse(f"{operator} is a {kind}; only operators are rebalanced")
        ranges, why = self.planned(operator)
        if ranges:
            self.host.request(Rebalance(operator))
        return {"operator": operator, "rebalanced": bool(ranges), "why": why}

    def planned(self, operator: str) -> tuple[list[KeyRange], str]:
        """The ranges that a rebalance would give the operator now; none when it would not change any."""
        view = self.host.view
        return plan_rebalance(view.journal.live(operator), loads_of(view.statuses))

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        live = self.host.view.journal.live(self._known(operator))
        if not 0 <= index < len(live):
            raise Misuse(f"{operator} has {len(live)} partitions, counted from 0; there is no {operator}/{index}")
        return {"partition": str(live[index].partition), "worker": self.host.kill(live[index].partition)}

    def stop(self, drain: bool) -> dict[str, Any]:
        self.host.request(StopFlow("drain" if drain else "stop"))
        return {"flow": self.flow, "stopping": "drain" if drain else "stop"}

    def _known(self, operator: str) -> str:
        nodes = self.host.machine.graph.nodes
        if operator not in nodes:
            raise Misuse(f"no operator {operator!r}; there are: {', '.join(nodes)}")
        return operator
