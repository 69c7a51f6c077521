from __future__ import annotations

from typing import Any

from faststream.kafka import KafkaBroker, TestKafkaBroker
from pydantic import BaseModel

from aioproducer import Producer
from aioproducer.contrib.faststream import PublishWith
from aioproducer.testing import Cluster


class Order(BaseModel):
    number: int


class Upper:
    def encode(self, message: Any) -> bytes:
        return str(message).upper().encode()


async def test_test_broker_stays_in_memory_without_a_started_producer() -> None:
    broker = KafkaBroker("localhost:1", middlewares=[PublishWith(Producer("localhost:1"))])

    @broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    async with TestKafkaBroker(broker):
        await broker.publish("text", "orders")
        handle.mock.assert_called_once_with("text")


async def test_records_have_the_bytes_of_faststream() -> None:
    async with Cluster(topics={"orders": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        plain = KafkaBroker(middlewares=[PublishWith(producer)], consumer_only=True)
        own = KafkaBroker(middlewares=[PublishWith(producer, serializer=Upper())], consumer_only=True)
        await plain.publish(Order(number=1), "orders", correlation_id="1")
        await plain.publish(None, "orders", key=b"k", correlation_id="1")
        await plain.publish(None, "orders", correlation_id="1")
        await plain.publish([1, "a"], "orders", timestamp_ms=1_000, partition=0, correlation_id="1")
        await own.publish({"a": 1}, "orders", correlation_id="1")
        await plain.publish_batch({"a": 1}, "b", topic="orders", correlation_id="1", timestamp_ms=2_000)
        records = cluster.records("orders", 0)
    assert [(each.key, each.value) for each in records] == [
        (None, b'{"number":1}'),
        (b"k", None),
        (None, b""),
        (None, b'[1,"a"]'),
        (None, b"{'A': 1}"),
        (None, b'{"a":1}'),
        (None, b"b"),
    ]
    types = [dict(each.headers)["content-type"] for each in records]
    json = b"application/json"
    assert types == [json, b"", b"", json, json, json, b"text/plain"]
    assert {dict(each.headers)["correlation_id"] for each in records} == {b"1"}
    assert [records[each].timestamp_ms for each in (3, 5, 6)] == [1_000, 2_000, 2_000]
