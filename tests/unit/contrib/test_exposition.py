from __future__ import annotations

import gc
import logging
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.contrib.exposition import METRICS, Exposed, Report, is_counter, numbers
from aioproducer.contrib.threads import ThreadedProducer
from aioproducer.testing import Cluster, ThreadedCluster


async def test_metrics_table_lists_all_metrics_of_a_producer() -> None:
    async with Cluster(topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v")
        told = producer.metrics()
    assert told["producer"].keys() == METRICS["producer"].keys()
    assert told["topics"]["orders"].keys() == METRICS["topics"].keys()
    assert told["nodes"][1].keys() == METRICS["nodes"].keys()
    for part, values in {"producer": told["producer"], "nodes": told["nodes"][1]}.items():
        of_part = numbers("producer" if part == "producer" else "nodes")
        texts = {key for key, value in values.items() if isinstance(value, str)}
        assert of_part.keys() == values.keys() - texts


def test_counters_are_the_totals() -> None:
    assert is_counter("record_send_total")
    assert is_counter("records_delivered")
    for gauge in ("record_send_rate", "buffer_total_bytes", "request_latency_max", "connected"):
        assert not is_counter(gauge)


class Broken(Producer):
    def metrics(self) -> Report:
        raise OSError("no")


def clients(exposed: Exposed) -> list[str]:
    return [client_id for client_id, _ in exposed.reports()]


@pytest.mark.parametrize("wrong", [None, Producer, "localhost:9092"])
def test_expose_accepts_only_producers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a Producer or a ThreadedProducer can be exposed, not"):
        Exposed().add(wrong)


async def test_open_producer_blocks_its_client_id() -> None:
    exposed = Exposed()
    first, second = (Producer("localhost:1", client_id="shop") for _ in range(2))
    exposed.add(first)
    exposed.add(first)
    with pytest.raises(ValueError, match=r"'shop' is exposed here.*give this one a client_id of its own"):
        exposed.add(second)
    assert len(exposed.reports()) == 1
    await first.close()
    exposed.add(second)
    assert clients(exposed) == ["shop"]


def test_producers_with_default_client_ids_are_distinct() -> None:
    exposed = Exposed()
    producers = [Producer("localhost:1") for _ in range(2)]
    for each in producers:
        exposed.add(each)
    assert len(set(clients(exposed))) == 2


async def test_closed_producer_is_dropped() -> None:
    exposed = Exposed()
    producer = Producer("localhost:1")
    exposed.add(producer)
    assert clients(exposed) == [producer.config.client_id]
    await producer.close()
    assert clients(exposed) == []


@pytest.mark.parametrize("kind", [Producer, ThreadedProducer])
def test_unreferenced_producer_is_dropped(kind: type[Producer | ThreadedProducer]) -> None:
    exposed = Exposed()
    exposed.add(kind("localhost:1", client_id="shop"))
    gc.collect()
    assert clients(exposed) == []
    held = kind("localhost:1", client_id="shop")
    exposed.add(held)
    gc.collect()
    assert clients(exposed) == ["shop"]


def test_failing_producer_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    exposed = Exposed()
    producers = Broken("localhost:1", client_id="broken"), Producer("localhost:1", client_id="good")
    for producer in producers:
        exposed.add(producer)
    for _ in range(2):
        assert clients(exposed) == ["good"]
    (line,) = caplog.records
    assert (line.levelno, line.getMessage()) == (logging.WARNING, "metrics.failed client_id=broken")
    assert line.exc_info


def test_threaded_producer_is_reported_until_it_closes(
    kafka_cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    exposed = Exposed()
    producer = ThreadedProducer(kafka_cluster.bootstrap_servers, client_id="views")
    exposed.add(producer)
    assert exposed.reports() == [("views", {"producer": {}, "topics": {}, "nodes": {}})]
    with producer:
        producer.send("orders", b"v")
        ((client_id, report),) = exposed.reports()
        assert (client_id, report["producer"]["records_delivered"]) == ("views", 1)
    assert clients(exposed) == []
    assert "metrics.failed" not in caplog.text
