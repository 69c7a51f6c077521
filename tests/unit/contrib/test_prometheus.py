from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import Producer
from aioproducer.contrib.exposition import METRICS
from aioproducer.contrib.prometheus import ProducerCollector, expose
from aioproducer.testing import Cluster

Samples = dict[str, dict[tuple[str, ...], float]]
"""Values by their labels' values, by the sample's name."""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


@pytest.fixture
def url(registry: CollectorRegistry) -> Iterator[str]:
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


async def scrape(url: str) -> tuple[Samples, dict[str, str]]:
    """Return the samples, and the type of each family."""

    def get() -> str:
        with urllib.request.urlopen(url) as answer:
            return str(answer.read(), "utf-8")

    samples: Samples = {}
    types = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(get)):
        types[family.name] = family.type
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples, types


async def test_running_producer_is_scraped(registry: CollectorRegistry, url: str) -> None:
    async with Cluster(topics={"orders": 2, "clicks": 1}) as cluster:
        async with Producer(cluster.bootstrap_servers, client_id="shop") as producer:
            expose(producer, registry)
            for number in range(11):
                await producer.send("orders", b"v", partition=number % 2)
            during, _ = await scrape(url)
            for number in range(9):
                await producer.send("orders", b"v", partition=number % 2)
            sending = [asyncio.create_task(producer.send("clicks", b"v")) for _ in range(3)]
            await asyncio.gather(*sending)
            after, types = await scrape(url)
        closed, _ = await scrape(url)
    assert during["kafka_producer_records_delivered_total"] == {("shop",): 11}
    assert after["kafka_producer_records_delivered_total"] == {("shop",): 23}
    assert after["kafka_producer_topic_record_send_total"] == {("shop", "orders"): 20, ("shop", "clicks"): 3}
    assert after["kafka_producer_node_connected"] == {("shop", "1"): 1}
    assert after["kafka_producer_node_request_latency_avg"]["shop", "1"] > 0
    assert types["kafka_producer_record_send"] == "counter"
    assert types["kafka_producer_records_delivered"] == "counter"
    assert types["kafka_producer_buffer_total_bytes"] == "gauge"
    assert len(types) == sum(map(len, METRICS.values())) - 1, "all but the addresses"
    assert closed == {}


@pytest.mark.usefixtures("hasty_threads")
def test_any_thread_may_expose() -> None:
    producers = [Producer("localhost:1") for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(50):
            list(threads.map(expose, producers, repeat(CollectorRegistry(auto_describe=True))))


async def test_several_producers_share_the_metrics(registry: CollectorRegistry, url: str) -> None:
    async with (
        Cluster(topics={"orders": 1}) as cluster,
        Producer(cluster.bootstrap_servers, client_id="a") as a,
    ):
        async with Producer(cluster.bootstrap_servers, client_id="b") as b:
            for producer in (a, b, b):
                expose(producer, registry)
            await b.send("orders", b"v")
            both, _ = await scrape(url)
        one, _ = await scrape(url)
    assert both["kafka_producer_record_send_total"] == {("a",): 0, ("b",): 1}
    assert one["kafka_producer_record_send_total"] == {("a",): 0}


async def test_average_without_events_is_no_sample(registry: CollectorRegistry, url: str) -> None:
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers, client_id="a") as producer:
        expose(producer, registry)
        samples, types = await scrape(url)
    assert "kafka_producer_request_latency_avg" not in samples
    assert "kafka_producer_request_latency_avg" in types
    assert samples["kafka_producer_record_send_rate"] == {("a",): 0}


def test_unstarted_producer_has_no_samples(registry: CollectorRegistry) -> None:
    producer = Producer("localhost:1")
    expose(producer, registry)
    assert [sample for family in registry.collect() for sample in family.samples] == []


def test_expose_refuses_other_types(registry: CollectorRegistry) -> None:
    producer = Producer("localhost:1", client_id="shop")
    expose(producer, registry)
    with pytest.raises(ValueError, match="'shop'"):
        expose(Producer("localhost:1", client_id="shop"), registry)
    wrong: Any = "localhost:9092"
    with pytest.raises(TypeError, match="ThreadedProducer"):
        expose(wrong, registry)
    with pytest.raises(TypeError, match="CollectorRegistry"):
        expose(Producer("localhost:1"), wrong)


def test_refused_registration_leaves_no_metric(registry: CollectorRegistry) -> None:
    taken = Gauge("kafka_producer_connection_count", "another's", registry=registry)
    producer = Producer("localhost:1")
    with pytest.raises(ValueError, match="Duplicated"):
        expose(producer, registry)
    registry.unregister(taken)
    expose(producer, registry)
    assert list(registry.collect())


def test_second_collector_in_a_registry_is_refused(registry: CollectorRegistry) -> None:
    expose(Producer("localhost:1"), registry)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(ProducerCollector())
