"""Waits of a bulk call, and the outcome of records that it could not append in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import (
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    Producer,
    SendManyError,
)
from tests.scenarios.rig import TOPIC, now, producing, scenario, values


async def fails(producer: Producer, *args: Any, **columns: Any) -> SendManyError:
    """Send many, and return the error."""
    with pytest.raises(SendManyError) as raised:
        await producer.send_many(TOPIC, *args, **columns)
    return raised.value


class TestWaiting:
    @scenario
    async def test_send_many_never_lingers(self) -> None:
        async with producing(partitions=3, linger_ms=60_000) as (producer, _):
            began_at = now()
            await producer.send_many(TOPIC, [b"v"] * 10)
            await producer.send_many(TOPIC, [b"v"] * 9, partitions=[0, 1, 2] * 3)
            assert now() == began_at

    @scenario
    async def test_send_many_sends_chunks_when_memory_is_short(self) -> None:
        async with producing(buffer_memory=2_000, batch_size=500) as (producer, cluster):
            result = await producer.send_many(TOPIC, [b"%04d" % number for number in range(2_000)])
            assert result.delivered == 2_000
            assert values(cluster) == [b"%04d" % number for number in range(2_000)]

    @scenario
    async def test_memory_that_does_not_come_fails_the_rest_and_only_that(self) -> None:
        async with producing(buffer_memory=1_000, max_block_ms=1_000) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(2.0)
            error = await fails(producer, [b"x" * 100] * 20)
            assert 0 < error.result.delivered < 20
            assert list(error.result.failures) == list(range(error.result.delivered, 20))
            assert {type(each) for each in error.result.failures.values()} == {BufferTimeout}
            assert len(values(cluster)) == error.result.delivered

    @scenario
    async def test_metadata_that_does_not_come_fails_all(self) -> None:
        async with producing(max_block_ms=1_000) as (producer, cluster):
            cluster.on("metadata", topic="slow", times=None).drop()
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("slow", [b"a", b"b"])
            assert [type(each) for each in raised.value.result.failures.values()] == [MetadataTimeout] * 2

    @scenario
    async def test_columns_may_be_reused_after_the_call(self) -> None:
        async with producing() as (producer, cluster):
            column: list[Any] = [b"a", bytearray(b"b"), memoryview(b"c")]
            keys: list[Any] = [b"k", b"l", b"m"]
            await producer.send_many(TOPIC, column, keys=keys)
            column[:], keys[:] = [b"d"], [b"n"]
            await producer.send_many(TOPIC, column, keys=keys)
            assert [(record.value, record.key) for record in cluster.records(TOPIC, 0)] == [
                (b"a", b"k"),
                (b"b", b"l"),
                (b"c", b"m"),
                (b"d", b"n"),
            ]

    @scenario
    async def test_cancelled_call_keeps_appended_records(self) -> None:
        async with producing(buffer_memory=1_000, linger_ms=60_000) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            sending = asyncio.create_task(producer.send_many(TOPIC, [b"%02d" % n * 50 for n in range(20)]))
            await asyncio.sleep(0.5)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            await producer.flush()
            log = values(cluster)
            assert 0 < len(log) < 20
            assert log == [b"%02d" % number * 50 for number in range(len(log))]


class TestTimeout:
    @scenario
    async def test_timeout_removes_unsent_records(self) -> None:
        async with producing() as (producer, cluster):
            await cluster.stop_broker(1)
            began_at = now()
            error = await fails(producer, [b"a", b"b"], timeout_s=2)
            assert now() - began_at == 2
            assert {type(each) for each in error.result.failures.values()} == {DeliveryTimeout}
            assert not error.possibly_persisted
            await cluster.start_broker(1)
            await producer.send(TOPIC, b"next")
            assert values(cluster) == [b"next"]

    @scenario
    async def test_timeout_reports_sent_records_as_possibly_stored(self) -> None:
        async with producing() as (producer, cluster):
            cluster.on("produce", topic=TOPIC).delay(1.0)
            error = await fails(producer, [b"a", b"b"], timeout_s=0.5)
            assert error.possibly_persisted
            await producer.flush()
            assert values(cluster) == [b"a", b"b"]

    @scenario
    async def test_large_send_many_stops_appending_at_its_deadline(self) -> None:
        async with producing(buffer_memory=100_000_000, batch_size=1_000_000, linger_ms=5) as (
            producer,
            cluster,
        ):
            error = await fails(producer, [b"v"] * 20_000, timeout_s=0)
            assert len(error.result.failures) == 20_000
            await producer.flush()
            assert values(cluster) == []
