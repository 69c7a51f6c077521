"""`buffer_memory` limits queued and in-flight records; calls wait for memory in order of arrival."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import BufferTimeout, MetadataTimeout, Producer, ProducerError, RecordMetadata
from aioproducer.testing import Cluster
from tests.scenarios.rig import TOPIC, now, producing, scenario, settle, values

LARGE = b"x" * 700
"""Two of these do not fit into a thousand bytes."""


def used_bytes(producer: Producer) -> int:
    memory = producer.metrics()["producer"]
    used = memory["buffer_total_bytes"] - memory["buffer_available_bytes"]
    assert isinstance(used, int)
    return used


async def fill(producer: Producer, cluster: Cluster, *, for_s: float = 1.0) -> asyncio.Task[RecordMetadata]:
    """Use up the memory of *producer* for a while, and return the send that holds it."""
    cluster.on("produce", topic=TOPIC).delay(for_s)
    sending = asyncio.create_task(producer.send(TOPIC, LARGE))
    await settle()
    return sending


@scenario
async def test_callers_waiting_for_memory_are_served_in_order() -> None:
    async with producing(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
        for topic in "abc":
            cluster.create_topic(topic)
            await producer.partitions_for(topic)
        _ = await fill(producer, cluster)
        order: list[str] = []

        async def send(topic: str, value: bytes) -> None:
            future = await producer.enqueue(topic, value)
            order.append(topic)
            await future

        await asyncio.gather(send("a", LARGE), send("b", b"small"), send("c", LARGE), send("a", b"small"))
        assert order == ["a", "b", "c", "a"]
        assert used_bytes(producer) == 0


@scenario
async def test_memory_that_does_not_come_in_time_is_a_buffer_timeout() -> None:
    async with producing(buffer_memory=1_000, max_block_ms=2_000, linger_ms=0) as (producer, cluster):
        first = await fill(producer, cluster, for_s=5.0)
        began_at = now()
        for call in (producer.send(TOPIC, LARGE), producer.enqueue(TOPIC, LARGE)):
            with pytest.raises(BufferTimeout, match="buffer_memory=1,000 bytes") as raised:
                await call
            assert isinstance(raised.value, TimeoutError)
            assert raised.value.retriable
            assert not raised.value.possibly_persisted
        assert now() - began_at == pytest.approx(4)
        await first
        assert values(cluster) == [LARGE]


@scenario
async def test_cancelled_memory_waiter_keeps_the_order() -> None:
    async with producing(buffer_memory=1_000, linger_ms=0) as (producer, cluster):
        _ = await fill(producer, cluster)
        cancelled = asyncio.create_task(producer.send(TOPIC, b"cancelled" * 70))
        patient = asyncio.create_task(producer.send(TOPIC, b"patient"))
        await settle()
        cancelled.cancel()
        await patient
        assert cancelled.cancelled()
        assert values(cluster) == [LARGE, b"patient"]
        assert used_bytes(producer) == 0


@scenario
async def test_waits_for_metadata_and_memory_share_max_block() -> None:
    async with producing(
        brokers=2,
        buffer_memory=1_000,
        max_block_ms=2_000,
        linger_ms=0,
    ) as (producer, cluster):
        _ = await fill(producer, cluster, for_s=10.0)
        cluster.on("metadata", topic="slow").delay(0.9)
        began_at = now()
        with pytest.raises(BufferTimeout):
            await producer.send("slow", LARGE)
        assert now() - began_at == pytest.approx(2)


@scenario
async def test_late_metadata_is_a_metadata_timeout() -> None:
    async with producing(max_block_ms=2_000) as (producer, cluster):
        cluster.on("metadata", topic="slow", times=None).drop()
        began_at = now()
        with pytest.raises(MetadataTimeout, match="slow") as raised:
            await producer.send("slow", b"v")
        assert now() - began_at == pytest.approx(2)
        assert isinstance(raised.value, TimeoutError)
        assert not raised.value.possibly_persisted


@scenario
async def test_max_block_zero_waits_for_nothing() -> None:
    async with producing(
        acquainted=False,
        max_block_ms=0,
        buffer_memory=1_000,
        linger_ms=0,
    ) as (producer, cluster):
        with pytest.raises(MetadataTimeout):
            await producer.send(TOPIC, b"not known yet")
        await asyncio.sleep(0.1)
        await producer.send(TOPIC, b"needs no waiting")
        _ = await fill(producer, cluster)
        with pytest.raises(BufferTimeout):
            await producer.send(TOPIC, LARGE)


@scenario
async def test_memory_waiter_ends_the_linger_of_batches() -> None:
    async with producing(buffer_memory=1_000, linger_ms=60_000) as (producer, cluster):
        began_at = now()
        first = producer.send_nowait(TOPIC, LARGE)
        second = await producer.enqueue(TOPIC, LARGE)
        assert first.done()
        await producer.flush()
        await second
        assert now() - began_at < 1
        assert values(cluster) == [LARGE, LARGE]


@scenario
async def test_memory_is_returned_after_every_outcome() -> None:
    async with producing(
        buffer_memory=10_000,
        delivery_timeout_ms=2_000,
        request_timeout_ms=1_000,
        linger_ms=5,
    ) as (producer, cluster):
        await producer.send(TOPIC, b"delivered")
        cluster.on("produce").answer(87)
        with pytest.raises(ProducerError):
            await producer.send(TOPIC, b"refused")
        with pytest.raises(TimeoutError):
            await producer.send(TOPIC, b"taken out", timeout_s=0)
        cancelled = asyncio.create_task(producer.send(TOPIC, b"detached"))
        await settle()
        cancelled.cancel()
        cluster.message_max_bytes = 150
        await producer.send_many(TOPIC, [b"taken apart"] * 20)
        cluster.freeze_broker(1)
        with pytest.raises(TimeoutError):
            await producer.send(TOPIC, b"expired")
        cluster.thaw_broker(1)
        await producer.send(TOPIC, b"and on")
        assert used_bytes(producer) == 0
        assert producer.metrics()["producer"]["batches_unfinished"] == 0
        assert cancelled.cancelled()


@scenario
async def test_record_larger_than_the_memory_is_refused_at_once() -> None:
    async with producing(buffer_memory=1_000) as (producer, _):
        with pytest.raises(ProducerError, match="more than buffer_memory=1,000") as raised:
            await producer.send(TOPIC, b"x" * 1_000)
        assert not raised.value.retriable
