from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import repeat
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

from aioproducer import Producer
from aioproducer.contrib.exposition import METRICS
from aioproducer.contrib.otel_metrics import expose
from aioproducer.testing import Cluster


class Observed:
    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def metrics(self) -> dict[str, Any]:
        """Return the current observations by name of the instrument."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def points(metric: Any) -> dict[tuple[Any, ...], float]:
    return {tuple(point.attributes.values()): point.value for point in metric.data.data_points}


async def test_running_producer_is_observed() -> None:
    observed = Observed()
    async with (
        Cluster(topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, client_id="shop") as producer,
    ):
        expose(producer, observed.provider)
        expose(producer, observed.provider)
        for _ in range(3):
            await producer.send("orders", b"v")
        metrics = observed.metrics()
    assert len(metrics) == sum(map(len, METRICS.values())) - 1, "all but the addresses"
    assert points(metrics["kafka.producer.record_send_total"]) == {("shop",): 3}
    assert points(metrics["kafka.producer.topic.records_delivered"]) == {("shop", "orders"): 3}
    assert points(metrics["kafka.producer.node.connected"]) == {("shop", "1"): 1}
    latency = metrics["kafka.producer.node.request_latency_avg"]
    assert latency.unit == "ms"
    assert isinstance(latency.data, Gauge)
    counter = metrics["kafka.producer.record_send_total"].data
    assert isinstance(counter, Sum)
    assert counter.is_monotonic


async def test_closed_producer_is_not_observed() -> None:
    observed = Observed()
    async with Cluster() as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            expose(producer, observed.provider)
            assert observed.metrics()
        assert observed.metrics() == {}


async def test_collection_reads_the_metrics_of_a_producer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    metrics = Producer.metrics

    def counted(producer: Producer) -> Any:
        nonlocal asked
        asked += 1
        return metrics(producer)

    monkeypatch.setattr(Producer, "metrics", counted)
    observed = [Observed(), Observed()]
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        for each in observed:
            expose(producer, each.provider)
        for collections in range(1, 4):
            assert observed[0].metrics()
            assert asked == collections
        assert observed[1].metrics()
        assert asked == 4


@pytest.mark.usefixtures("hasty_threads")
async def test_any_thread_may_expose() -> None:
    async with Cluster() as cluster, AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(Producer(cluster.bootstrap_servers, client_id=name))
            for name in "abcd"
        ]
        with ThreadPoolExecutor(4) as threads:
            for _ in range(50):
                observed = Observed()
                list(threads.map(expose, producers, repeat(observed.provider)))
                told = points(observed.metrics()["kafka.producer.connection_count"])
                assert told.keys() == {("a",), ("b",), ("c",), ("d",)}


def test_global_provider_may_be_set_later() -> None:
    # In a program of its own: it is set once.
    subprocess.run([sys.executable, "-c", SET_LATE], check=True)


SET_LATE = """
import asyncio
from opentelemetry.metrics import set_meter_provider
from aioproducer import Producer
from aioproducer.contrib.otel_metrics import expose
from aioproducer.testing import Cluster
from tests.unit.contrib.test_otel_metrics import Observed, points

async def main():
    async with Cluster() as cluster:
        producers = [Producer(cluster.bootstrap_servers, client_id=name) for name in "abc"]
        for producer in producers:
            await producer.start()
        observed = Observed()
        expose(producers[0])
        set_meter_provider(observed.provider)
        expose(producers[1])
        expose(producers[2], observed.provider)
        told = points(observed.metrics()["kafka.producer.connection_count"])
        assert told.keys() == {("a",), ("b",), ("c",)}, told
        for producer in producers:
            await producer.close()

asyncio.run(main())
"""


async def test_average_without_events_is_not_observed() -> None:
    observed = Observed()
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        expose(producer, observed.provider)
        metrics = observed.metrics()
    assert "kafka.producer.request_latency_avg" not in metrics
    assert "kafka.producer.record_send_rate" in metrics


async def test_provider_defaults_to_the_global_one(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed()
    monkeypatch.setattr(api._internal, "_METER_PROVIDER", observed.provider)
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        expose(producer)
        assert observed.metrics()


def test_expose_refuses_other_types() -> None:
    provider = Observed().provider
    producer = Producer("localhost:1", client_id="shop")
    expose(producer, provider)
    with pytest.raises(ValueError, match="'shop'"):
        expose(Producer("localhost:1", client_id="shop"), provider)
    wrong: Any = "localhost:9092"
    with pytest.raises(TypeError, match="ThreadedProducer"):
        expose(wrong, provider)
    with pytest.raises(TypeError, match="MeterProvider"):
        expose(Producer("localhost:1"), wrong)
