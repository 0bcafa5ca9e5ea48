"""The verbs on a running job, in the words users know: operators and positions, not ids and generations."""

from __future__ import annotations

from typing import Any

from seep.control.balance import plan_rebalance, plan_scale
from seep.control.decisions import shown
from seep.control.progress import progress
from seep.control.requests import Rebalance, ScaleTo, StopFlow, Upgrade
from seep.control.scaling import check_count, loads_of
from seep.errors import DataLoss, Misuse, Retry, error_of
from seep.model.counts import whole
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
                    "partition": f"{name}/{index}",
                    "number": entry.partition.number,
                    "buckets": [entry.key_range.low, entry.key_range.high],
                    "worker": entry.worker,
                    "epoch": status.epoch if status else None,
                    "busy_seconds": round(view.busy[entry.partition].busy_ms / 1000, 1)
                    if entry.partition in view.busy
                    else 0.0,
                    "ended": bool(status and status.ended),
                    "statistics": dict(status.statistics) if status else {},
                }
                for index, entry in enumerate(entries)
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
            "poison": [str(one) for one in view.journal.poisons if operator in (None, one.operator)],
            "counts": dict(self.watch.governor.counts),
            "pool": {"wanted": view.wanted, "there": len(view.workers), "shortage": view.shortage},
            "steps": [{"at_ms": round(at_ms), "what": what} for at_ms, what in view.decisions],
            "policies": {
                name: node.policy if isinstance(node.policy, str) else type(node.policy).__name__
                for name, node in graph.nodes.items()
                if node.policy is not None
            },
        }

    def scale(self, operator: str, count: int, dry_run: bool = False) -> dict[str, Any]:
        """`dry_run`: nothing is changed; the answer says which partitions would give way to which key ranges."""
        count = check_count(self.host.machine.graph.nodes[self._known(operator)], count)
        if dry_run:
            return {"operator": operator, "count": count, **self._replaced(operator, count)}
        self.host.request(ScaleTo(operator, count))
        return {"operator": operator, "count": count}

    def _replaced(self, operator: str, count: int) -> dict[str, Any]:
        view = self.host.view
        live = view.journal.live(operator)
        if not live:
            raise Retry(f"{operator} has not started yet; try again")
        old, ranges = plan_scale(live, count, loads_of(view.statuses))
        told = {f"{operator}/{index}": _buckets(e.key_range) for index, e in enumerate(live) if e.partition in old}
        return {"dry_run": True, "now": len(live), "old": told, "new": [_buckets(one) for one in ranges]}

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

    def upgrade(self, operator: str, code: str) -> None:
        """Asks for it."""
        try:
            owner = self.host.job.upgrade(code).node.name
        except DataLoss as problem:
            raise Misuse(str(problem)) from problem
        if owner != self._known(operator):
            raise Misuse(f"{code} is code of {owner}, not of {operator}")
        self.host.request(Upgrade(operator, code))

    def kill(self, operator: str, index: int) -> dict[str, Any]:
        live = self.host.view.journal.live(self._known(operator))
        index = whole("index", index)
        if self.host.outcome:
            raise Retry(f"kill {operator}/{index}: the flow has {self.host.outcome}")
        if index >= len(live):
            raise Misuse(f"{operator} has {len(live)} partitions, counted from 0; there is no {operator}/{index}")
        worker = self.host.kill(live[index].partition)
        if not worker:
            raise Retry(f"nobody runs {operator}/{index} at the moment, it is about to start; try again")
        return {"partition": f"{operator}/{index}", "worker": worker}

    def stop(self, drain: bool) -> dict[str, Any]:
        self.host.request(StopFlow("drain" if drain else "stop"))
        return {"flow": self.flow, "stopping": "drain" if drain else "stop"}

    def _known(self, operator: str) -> str:
        nodes = self.host.machine.graph.nodes
        if operator not in nodes:
            raise Misuse(f"no operator {operator!r}; there are: {', '.join(nodes)}")
        return operator


def _buckets(key_range: KeyRange) -> str:
    return f"{key_range.low}-{key_range.high - 1}"
