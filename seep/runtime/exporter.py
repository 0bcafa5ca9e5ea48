"""Numbers for Prometheus, of a worker or of the controller, served on a free port: of the loopback interface,
or, where workers may be on several hosts, of the one that reaches the others.

A worker writes the port to the job directory. Its loop is asked for a whole new snapshot with each scrape (`Asked`), so
the serving thread never looks into a machine that is at work, and a rate between two scrapes is one between two
measurements. The controller's numbers are few and are taken when they are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from seep.partition.histogram import Histogram
from seep.runtime.numbers import FAMILIES, HISTOGRAMS, Family, Snapshot

PATIENCE_SECONDS = 0.2


class Asked:
    """What a loop has measured, handed over between two threads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` makes the loop look whether somebody asks."""
        self.wanted = False
        self._wake = wake
        self._given = threading.Event()
        self._snapshot: Snapshot = {}

    def give(self, snapshot: Snapshot) -> None:
        """The loop's part."""
        self._snapshot, self.wanted = snapshot, False
        self._given.set()

    def take(self) -> Snapshot:
        """The other's: what is measured now, or was before if the loop is inside a long piece of work."""
        self._given.clear()
        self.wanted = True
        self._wake()
        self._given.wait(PATIENCE_SECONDS)
        return self._snapshot


class Exporter(Collector):
    def __init__(
        self,
        take: Callable[[], Snapshot],
        families: Iterable[Family] = FAMILIES,
        histograms: Container[str] = HISTOGRAMS,
    ) -> None:
        """`take` is asked with every scrape."""
        self._take = take
        self._families = families
        self._histograms = histograms
        self._server: Any = None
        self._thread: Any = None

    def serve(self, address: str = "127.0.0.1") -> int:
        """Start serving at an address of this host; the port."""
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(0, addr=address, registry=registry)
        return int(self._server.server_port)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def collect(self) -> Iterable[Metric]:
        snapshot = self._take()
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
