"""Metrics of the producer compared with the log of a real broker."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer, ProducerOptions
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic


@pytest.mark.parametrize("options", [{}, {"compression_type": "zstd"}], ids=["none", "zstd"])
async def test_metrics_count_the_records_and_bytes_in_the_log(
    kafka: ApacheKafka, new_topic: NewTopic, options: ProducerOptions
) -> None:
    topic = new_topic(partitions=1)
    async with Producer(kafka.bootstrap_servers, **options) as producer:
        result = await producer.send_many(topic, [b"%05d" % number for number in range(10_000)])
        last = await producer.send(topic, b"alone")
        told = producer.metrics()
    stored = await asyncio.to_thread(kafka.first_segment, topic)
    of_topic, of_all, [of_node] = told["topics"][topic], told["producer"], told["nodes"].values()
    assert of_topic["record_send_total"] == len(result) + 1 == last.offset + 1
    assert of_topic["byte_total"] == len(stored)
    assert (of_topic["record_error_total"], of_topic["record_retry_total"]) == (0, 0)
    assert of_topic["compression_rate"] == 1 if not options else of_topic["compression_rate"] < 0.9
    assert (of_all["produce_throttle_time_avg"], of_all["produce_throttle_time_max"]) == (0, 0)
    assert 0 < of_all["request_latency_avg"] <= of_all["request_latency_max"]
    assert of_node["outgoing_byte_total"] > of_topic["byte_total"]
    assert of_all["request_total"] == of_all["response_total"] >= of_node["request_total"]
