"""A worker's numbers for Prometheus: taken from `statistics()` when they are asked for, stored nowhere twice.

Served on a free loopback port, which the worker writes to the job directory. The loop hands over a whole new
snapshot now and then (one assignment), so the serving thread never looks into a machine that is at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Snapshot = Mapping[str, Mapping[str, float]]
"""By partition (empty: the worker itself), then by name."""


class Exporter(Collector):
    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._snapshot: Snapshot = {}
        self._server: Any = None
        self._thread: Any = None

    def serve(self) -> int:
        """Start serving; the port."""
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        return int(self._server.server_port)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def update(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for partition, numbers in self._snapshot.items():
            operator = partition.rpartition("/")[0]
            for name, number in numbers.items():
                level = "partition" if partition else "worker"
                full = f"seep_{level}_{name}"
                if full not in families:
                    labels = ["worker", "operator", "partition"] if partition else ["worker"]
                    families[full] = GaugeMetricFamily(full, f"{name} of a {level}", labels=labels)
                values = [self._worker, operator, partition] if partition else [self._worker]
                families[full].add_metric(values, number)
        return families.values()
