"""Exposition of producers' metrics to Prometheus, through prometheus_client.

    async with Producer("localhost:9092") as producer:
        expose(producer)

Names are `kafka_producer_`, `kafka_producer_topic_` or `kafka_producer_node_`, and the key in `metrics()`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

from aioproducer import Producer
from aioproducer._core.extras import needs
from aioproducer.contrib.exposition import Exposed, Part, Report, is_counter, numbers
from aioproducer.contrib.threads import ThreadedProducer

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.prometheus", "prometheus")) from _missing

_PREFIXES: Final[dict[Part, tuple[str, tuple[str, ...]]]] = {
    "producer": ("kafka_producer_", ("client_id",)),
    "topics": ("kafka_producer_topic_", ("client_id", "topic")),
    "nodes": ("kafka_producer_node_", ("client_id", "node")),
}


class ProducerCollector(Collector):
    """Collector of the metrics of its producers. Closed producers are dropped."""

    def __init__(self) -> None:
        self._exposed = Exposed()

    def add(self, producer: Producer | ThreadedProducer) -> None:
        """Expose *producer* until it is closed. See `expose`."""
        self._exposed.add(producer)

    def describe(self) -> Iterator[Metric]:
        """Return all metrics without values, so that a registry refuses a second collector."""
        for part, (prefix, labels) in _PREFIXES.items():
            for key, metric in numbers(part).items():
                family = CounterMetricFamily if is_counter(key) else GaugeMetricFamily
                yield family(
                    prefix + key, f"{metric.meaning} [{metric.unit}]".removesuffix(" []"), labels=labels
                )

    def collect(self) -> Iterator[Metric]:
        """Return all metrics with their current values. Thread-safe."""
        reports = self._exposed.reports()
        families = iter(self.describe())
        for part in _PREFIXES:
            for key in numbers(part):
                family: Any = next(families)
                for labels, values in _rows(part, reports):
                    value = values.get(key)
                    if value is not None:  # an average without samples
                        family.add_metric(labels, float(value))
                yield family


_collectors: Final[WeakKeyDictionary[CollectorRegistry, ProducerCollector]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def expose(producer: Producer | ThreadedProducer, registry: CollectorRegistry = REGISTRY) -> None:
    """Expose the metrics of *producer* in *registry* until the producer is closed.

    Raises:
        TypeError: *producer* or *registry* is of another type.
        ValueError: an open producer with the same `client_id`, which is the label, is exposed already.
    """
    if not isinstance(registry, CollectorRegistry):
        raise TypeError(f"a CollectorRegistry of prometheus_client is expected, not {registry!r}")
    with _lock:
        collector = _collectors.get(registry) or ProducerCollector()
        collector.add(producer)
        if registry not in _collectors:
            registry.register(collector)
            _collectors[registry] = collector


def _rows(part: Part, reports: list[tuple[str, Report]]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    for client_id, report in reports:
        if part == "producer":
            yield [client_id], report[part]
        else:
            for name, values in report[part].items():
                yield [client_id, str(name)], values
