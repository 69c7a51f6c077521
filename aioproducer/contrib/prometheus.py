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
from aioproducer.contrib.exposition import METRICS, PARTS, Exposed, Part, is_counter, numbers, samples
from aioproducer.contrib.threads import ThreadedProducer

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.prometheus", "prometheus")) from _missing


class ProducerCollector(Exposed, Collector):
    """Collector of the metrics of its producers. Closed producers are dropped."""

    def describe(self) -> Iterator[Metric]:
        """Return all metrics without values, so that a registry refuses a second collector."""
        for part in PARTS:
            for key in numbers(part):
                yield _family(part, key)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics with their current values. Thread-safe."""
        reports = self.reports()
        for part in PARTS:
            for key in numbers(part):
                family = _family(part, key)
                for labels, value in samples(part, key, reports):
                    family.add_metric(labels.values(), float(value))
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


def _family(part: Part, key: str) -> Any:
    """Return the metric without values."""
    metric, (prefix, label) = METRICS[part][key], PARTS[part]
    family = CounterMetricFamily if is_counter(key) else GaugeMetricFamily
    meaning = f"{metric.meaning} [{metric.unit}]".removesuffix(" []")
    return family(
        prefix.replace(".", "_") + key, meaning, labels=["client_id", label] if label else ["client_id"]
    )
