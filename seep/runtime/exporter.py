"""Numbers for Prometheus, of a worker or of the controller, served on a free loopback port.

A worker writes the port to the job directory. Its loop hands over a whole new snapshot now and then (one assignment),
so the serving thread never looks into a machine that is at work. The controller's numbers are few and are taken when
they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from seep.partition.histogram import Histogram
from seep.runtime.numbers import FAMILIES, HISTOGRAMS, Family, Snapshot


class Exporter(Collector):
    def __init__(
        self,
        families: Iterable[Family] = FAMILIES,
        histograms: Container[str] = HISTOGRAMS,
        take: Callable[[], Snapshot] | None = None,
    ) -> None:
        """`take` is asked with every scrape; without it, the latest `update` is served."""
        self._families = families
        self._histograms = histograms
        self._take = take
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

    def collect(self) -> Iterable[Metric]:
        snapshot = self._take() if self._take is not None else self._snapshot
        for family in self._families:
            if family.name in self._histograms:
                yield _histogram(family, snapshot.get(family.name, {}))
                continue
            kind = CounterMetricFamily if family.counts else GaugeMetricFamily
            # The client puts `_total` behind a counter's name by itself.
            metric = kind(family.name.removesuffix("_total"), family.help, labels=family.labels)
            for labels, number in snapshot.get(family.name, {}).items():
                assert not isinstance(number, Histogram)
                metric.add_metric(labels, number)
            yield metric


def _histogram(family: Family, values: Mapping[tuple[str, ...], float | Histogram]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, found in values.items():
        if isinstance(found, Histogram):
            metric.add_metric(labels, found.buckets(), found.sum_ms / 1000)
    return metric
