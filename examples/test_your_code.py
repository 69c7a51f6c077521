"""Test code that sends, against a Kafka that starts in milliseconds.

The fixture `kafka_cluster` comes with the package, there is nothing to set up. In this clone, after `make venv`:

    .venv/bin/pytest examples/test_your_code.py

In a project of your own: `pytest`, as ever.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from aioproducer import DeliveryTimeout, NotEnoughReplicas, Producer
from aioproducer.testing import ThreadedCluster


# The code to be tested: nothing in it knows of tests.
async def place_orders(bootstrap_servers: str, customer: str, totals: list[float]) -> list[int]:
    """Send an order per total; return their offsets."""
    async with Producer(bootstrap_servers, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as producer:
        sent = [
            await producer.send("orders", json.dumps({"total": total}).encode(), key=customer.encode())
            for total in totals
        ]
    return [each.offset for each in sent]


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_orders_are_in_the_log_in_their_order(kafka_cluster: ThreadedCluster) -> None:
    """The cluster is this test's alone, on a thread of its own: tests with and without async can use it."""
    assert asyncio.run(place_orders(kafka_cluster.bootstrap_servers, "ada", [10, 20])) == [0, 1]
    records = kafka_cluster.records("orders", 0)
    assert [json.loads(record.value or b"") for record in records] == [{"total": 10}, {"total": 20}]
    assert {record.key for record in records} == {b"ada"}


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_order_is_placed_once_when_the_response_is_lost(kafka_cluster: ThreadedCluster) -> None:
    """The broker appends the record and closes the connection without a response."""
    kafka_cluster.on("produce").close(before_append=False)
    assert asyncio.run(place_orders(kafka_cluster.bootstrap_servers, "ada", [10])) == [0]
    assert len(kafka_cluster.records("orders", 0)) == 1


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_order_fails_when_replicas_are_missing(kafka_cluster: ThreadedCluster) -> None:
    """The error states that the order is not in the log."""
    kafka_cluster.on("produce", times=None).answer(NotEnoughReplicas)
    with pytest.raises(DeliveryTimeout) as failure:
        asyncio.run(place_orders(kafka_cluster.bootstrap_servers, "ada", [10]))
    assert not failure.value.possibly_persisted
    assert kafka_cluster.records("orders", 0) == []
