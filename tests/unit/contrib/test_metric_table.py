from __future__ import annotations

from aioproducer import Producer
from aioproducer.contrib.metric_table import METRICS, is_counter, numbers
from aioproducer.testing import Cluster


async def test_it_lists_what_a_producer_tells_no_less_and_no_more() -> None:
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


def test_counters_are_what_never_shrinks() -> None:
    assert is_counter("record_send_total")
    assert is_counter("records_delivered")
    for gauge in ("record_send_rate", "buffer_total_bytes", "request_latency_max", "connected"):
        assert not is_counter(gauge)
