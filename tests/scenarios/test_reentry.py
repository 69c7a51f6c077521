"""User code that is called by the producer and calls the producer, and work that only the sender may delay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import (
    DeliveryTimeout,
    Interceptor,
    Murmur2Partitioner,
    NotLeaderOrFollower,
    Producer,
    ProducerClosed,
    ProducerError,
    RecordMetadata,
    TopicPartition,
)
from aioproducer._core.sender.loop import Sender
from tests.scenarios.rig import TOPIC, now, producing, scenario


class SendsAgain(Interceptor):
    """Interceptor that sends another record for each failed record, inside `on_acknowledgement`."""

    producer: Producer
    refused: ProducerClosed | None = None

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        if error is not None:
            try:
                _ = self.producer.send_nowait(TOPIC, b"again")
            except ProducerClosed as closed:
                self.refused = closed


@scenario
async def test_record_sent_for_a_removed_one_reserves_memory_once() -> None:
    again = SendsAgain()
    async with producing(linger_ms=2_000, interceptors=[again]) as (producer, _):
        again.producer = producer
        await producer.send(TOPIC, b"known")
        staying = await producer.enqueue(TOPIC, b"keeps the batch")
        with pytest.raises(DeliveryTimeout):
            await producer.send(TOPIC, b"too late", timeout_s=0.5)
        await producer.flush()
        assert (await staying).offset >= 0
        memory = producer.metrics()["producer"]
        assert memory["buffer_available_bytes"] == memory["buffer_total_bytes"]


@scenario
async def test_crashed_producer_refuses_records_of_its_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    again = SendsAgain()
    async with producing(linger_ms=1_000, interceptors=[again]) as (producer, _):
        again.producer = producer
        await producer.send(TOPIC, b"known")
        failing = producer.send_nowait(TOPIC, b"fails")

        def bug(_: Sender) -> None:
            raise LookupError("a bug")

        monkeypatch.setattr(Sender, "_run_once", bug)
        with pytest.raises(ProducerError, match="a bug"):
            await failing
        assert again.refused is not None


@scenario
async def test_metadata_request_leaves_the_in_flight_limit_free() -> None:
    options: dict[str, Any] = {"max_in_flight_requests_per_connection": 1, "metadata_max_age_ms": 5_000}
    async with producing(linger_ms=0, **options) as (producer, cluster):
        await producer.send(TOPIC, b"first")
        rule = cluster.on("metadata", times=1).delay(0.5)
        await rule.happened()
        asked_at = now()
        await producer.send(TOPIC, b"second")
        assert now() - asked_at < 1.0


@scenario
async def test_refused_partitions_share_metadata_requests() -> None:
    async with producing(linger_ms=0, partitions=20) as (producer, cluster):
        await producer.send(TOPIC, b"first")
        asked = cluster.request_count("metadata")
        rule = cluster.on("produce", times=None).answer(NotLeaderOrFollower)
        futures = [await producer.enqueue(TOPIC, b"v", partition=each) for each in range(20)]
        await asyncio.sleep(20)
        assert cluster.request_count("metadata") - asked <= 60
        rule.remove()
        await asyncio.gather(*futures)


@scenario
async def test_close_ends_with_the_last_outcome() -> None:
    async with producing(linger_ms=0, delivery_timeout_ms=31_000) as (producer, cluster):
        await producer.send(TOPIC, b"first")
        cluster.on("produce", times=None).drop()
        future = producer.send_nowait(TOPIC, b"never answered")
        began_at = now()
        await producer.close(600)
        assert now() - began_at < 31.2
        assert isinstance(future.exception(), DeliveryTimeout)


@scenario
async def test_derived_partitioner_is_used_by_every_send_call() -> None:
    class Last(Murmur2Partitioner):
        def partition(self, topic: str, key: bytes | None, count: int, available: object) -> int:
            return count - 1

    async with producing(partitioner=Last(), partitions=4) as (producer, _):
        one = await producer.send(TOPIC, b"v", key=b"k")
        many = await producer.send_many(TOPIC, [b"v"], keys=[b"k"])
        assert (one.partition, many.partition(0)) == (3, 3)
